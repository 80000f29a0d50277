{% macro comma_separated(names) %}{{ names | join(', ') }}{% endmacro %}
