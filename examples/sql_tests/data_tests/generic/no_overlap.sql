{# Versions of one thing that are valid at the same time. #}
{% test no_overlap(model, of, from_column, to_column) %}
select *
from (
    select
        {{ comma_separated(of) }}, {{ from_column }}, {{ to_column }},
        lead({{ from_column }}) over (partition by {{ comma_separated(of) }} order by {{ from_column }}) as next_from
    from {{ model }}
)
where next_from < {{ to_column }}
{% endtest %}
