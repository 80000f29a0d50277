{% test at_least(model, column_name, least=0) %}
select {{ column_name }} from {{ model }} where {{ column_name }} < {{ least | sql_literal }}
{% endtest %}
