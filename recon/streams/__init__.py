"""The query-progress listener, and `recon advise`, which recommends settings from the recorded progress."""
