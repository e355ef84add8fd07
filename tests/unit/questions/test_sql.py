"""SQL of users: queries over the tables of a data set pass, everything else is refused with the reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopitiam.contracts.errors import QuestionError
from kopitiam.contracts.sql_queries import MAX_SQL_CHARACTERS
from kopitiam.questions.sql import check_sql

QUERIES = [
    "select count(*) from transactions",
    "select store_name, sum(final_amount) as s from transactions t join stores using (store_id) "
    "where year(created_at) = 2024 group by store_name having count(*) > 3 order by s desc limit 5",
    "with days as (select date(created_at) as d, sum(final_amount) as r from transactions group by 1) "
    "select d, r, r - lag(r) over (order by d) as change from days",
    "select date_trunc('month', created_at), count(distinct user_id), avg(final_amount) from transactions "
    "group by all",
    "select case when final_amount > 10 then 'large' else 'small' end, count_if(user_id is null) "
    "from transactions where created_at >= timestamp '2024-01-01 00:00:00' group by 1",
    "select item_name, cast(sum(subtotal) as decimal(20, 2)) from transaction_items i "
    "left join menu_items m on i.item_id = m.item_id group by rollup(item_name)",
    "select hour(created_at), dayofweek(created_at), date_add(date(created_at), 3), "
    "rank() over (partition by store_id order by final_amount desc) from transactions",
    "select * from (select store_id, row_number() over (order by store_id) as n from stores) where n < 3 "
    "union all select 1, 2",
    "select datediff(created_at, registered_at), created_at + interval 1 day, "
    "max_by(final_amount, created_at), substring(transaction_id, 1, 3) || 'x' "
    "from transactions join users using (user_id) group by all",
]
DOUBLED_TABLES = "with t0 as (select 1 as n from stores a, stores b), " + ", ".join(
    f"t{i} as (select a.n from t{i - 1} a, t{i - 1} b)" for i in range(1, 10)
)
DOUBLED_COLUMNS = "with t0 as (select store_id as n from stores), " + ", ".join(
    f"t{i} as (select n + n as n from t{i - 1})" for i in range(1, 30)
)
LONG_CHAIN = "t0 as (select * from stores), " + ", ".join(
    f"t{i} as (select * from t{i - 1})" for i in range(1, 400)
)
ALIASES = ", ".join(f"c{i - 1} + c{i - 1} as c{i}" for i in range(1, 30))
REFUSED = {
    # other places than the tables
    "select * from parquet.`/etc/passwd`": "is not a table",
    "select * from `/etc/passwd`": "there is no table /etc/passwd",
    "select * from other.stores": "is not a table",
    "select * from range(10)": "is not a table",
    "select * from identifier('stores')": "is not a table",
    "select * from values (1, 2)": "is not supported",
    "select * from runs": "there is no table runs",
    "select 1 from stores where exists (select 1 from system.runs)": "is not a table",
    "select 1": "reads no table",
    "with stores as (select 1 as a) select * from stores": "choose a name that no table has",
    # other statements
    "drop table transactions": "only a query",
    "insert into stores select * from stores": "only a query",
    "create table x as select * from stores": "only a query",
    "merge into stores using stores on true when matched then delete": "only a query",
    "set spark.sql.ansi.enabled = false": "only a query",
    "show tables": "only a query",
    "explain select * from stores": "only a query",
    "cache table stores": "only a query",
    "load data inpath 'x' into table stores": "only a query",
    "add jar x": "only a query",
    "use other": "only a query",
    "select * from stores; drop table stores": "not one statement",
    "": "not one statement",
    "select from where": "cannot be read",
    # code, reflection, the machine
    "select reflect('java.lang.System', 'exit', 0) from stores": "no function reflect",
    "select try_reflect('java.lang.System', 'exit', 0) from stores": "no function try_reflect",
    "select java_method('java.lang.Runtime', 'getRuntime') over () from stores": "no function java_method",
    "select transform(store_id) using 'cat' from stores": "is not supported",
    "select transform(array(1), x -> x) from stores": "is not supported",
    "select input_file_name() from stores": "no function input_file_name",
    "select version() from stores": "no function version",
    "select current_user() from stores": "is not supported",
    "select current_timestamp() from stores": "is not supported",
    "select rand() from stores": "is not supported",
    "select from_json('1', 'a int') from stores": "is not supported",
    "select $x from stores": "is not supported",
    # memory and time
    "select repeat('x', 1000000000) from stores": "is not supported",
    "select collect_list(store_id) from stores": "is not supported",
    "select * from stores lateral view explode(sequence(1, 1000000000)) t as x": "is not supported",
    "with recursive t as (select 1 from stores union all select 1 from t) select * from t": "RECURSIVE",
    "select 1 from stores a full outer join stores b on a.city = b.city": "FULL JOIN is not supported",
    f"select 1 from {', '.join(f'stores s{i}' for i in range(12))}": "more than 10 joins",
    f"select 1 from stores where {' or '.join(['1 in (select 1 from users)'] * 11)}": "more than 10 joins",
    "with a as (select 1 from stores, users, stores) select 1 from a b, a c, a d, a e": "more than 10 joins",
    "select /*+ broadcast(stores) */ * from stores": "HINT is not supported",
    "select * from stores tablesample (1 rows)": "is not a table",
    "select * from stores for update": "LOCKS is not supported",
    f"select {' || '.join(['store_name'] * 20)} from stores": "concatenates more than 16 texts",
    f"select {'(' * 100}1{')' * 100} from stores": "too",
    f"select {' + '.join(['1'] * 4000)} from stores": "too",
    f"select {'date(' * 40}1{')' * 40} from stores": "nested too deeply",
    f"select {'char(' * 40}1 from stores": "nested too deeply",
    f"select cast(1 as {'array<' * 40}int{'>' * 40}) from stores": "a cast is to DECIMAL",
    "select store_name from stores where store_name like '%a%a%a%b'": "at most 3 %",
    "select store_name from stores where store_name like city": "LIKE takes a text",
    f"select 1 from stores group by cube({', '.join(['city'] * 11)})": "at most 10 columns",
    f"select 1 from stores group by {', '.join(['city'] * 11)} with cube": "at most 10 columns",
    f"{DOUBLED_TABLES} select 1 from t9": "more than 100 tables",
    f"{DOUBLED_COLUMNS} select n from t29 where n > 1": "more than 2,000 times",
    f"select store_id as c0, {ALIASES} from stores": "more than 2,000 times",
    f"with {LONG_CHAIN} select 1 from t399": "more than 50 WITH queries",
    "with a as (select 1 from b), b as (select 1 from a) select 1 from a, stores": "refers to itself",
    "with a as (select 1 from stores), A as (select 1 from stores) select 1 from a": "named twice",
    # names that stand for functions or hidden columns
    "select user from stores": "user is not supported",
    "select `Current_Schema` from stores": "is not supported",
    "select _metadata.file_path from stores": "_metadata is not supported",
    "select s._metadata from stores as s": "_metadata is not supported",
    f"select '{'x' * MAX_SQL_CHARACTERS}' from stores": "characters",
    # floats
    "select cast(final_amount as double) from transactions": "a cast is to DECIMAL",
}


TEN_JOINS = f"select 1 from {', '.join(f'stores s{i}' for i in range(11))}"


@pytest.mark.parametrize("query", [*QUERIES, TEN_JOINS, f"with a as ({TEN_JOINS}) select * from a"])
def test_a_query_over_the_tables_is_written_again_and_accepted(query: str) -> None:
    checked = check_sql(query)
    assert checked.tables
    assert check_sql(checked.text) == checked


@pytest.mark.parametrize("query", REFUSED)
def test_anything_else_is_refused_in_one_line(query: str) -> None:
    with pytest.raises(QuestionError) as refusal:
        check_sql(query)
    assert REFUSED[query] in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_comments_are_not_passed_on() -> None:
    assert (
        check_sql("select /* ; drop table x */ store_id -- y\nfrom stores").text
        == "SELECT store_id FROM stores"
    )


def test_a_query_reads_the_tables_that_it_names() -> None:
    query = "with a as (select * from stores) select * from a join transactions using (store_id)"
    assert check_sql(query).tables == ("stores", "transactions")


WORDS = ["select", "from", "stores", "*", "(", ")", ",", "'", "`", ";", "--", "/*", ".", "x"]


@given(text=st.text(max_size=60) | st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))
def test_any_text_is_refused_or_reads_known_tables(text: str) -> None:
    try:
        checked = check_sql(text)
    except QuestionError as error:
        assert "\n" not in str(error)
    else:
        assert checked.tables
