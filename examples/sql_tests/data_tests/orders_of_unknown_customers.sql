-- Orders since a day whose customer nobody knows.
{{ config(tags='customers', limit=100) }}

with recent as (
    select * from {{ ref('orders') }} where valid_from >= {{ var('since', '2026-01-01') | sql_literal }}
)
select recent.order_id, recent.customer_id
from recent
left anti join {{ ref('customers') }} as c on c.id = recent.customer_id
