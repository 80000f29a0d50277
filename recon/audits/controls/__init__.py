"""Controls and frameworks of the compliance report: their wording (`catalog`) and their days (`days`)."""
