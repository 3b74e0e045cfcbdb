"""A superuser who rewrites the past by hand: triggers, checks and identities are no obstacle; what was changed can be put back."""

import contextlib

import psycopg
from psycopg import sql

# Tables of quorate_store that the history does not cover, and why.
NOT_AUDITED = {
    "migration": "the migrator's own; `quorate migrate --verify` compares it with the program",
    "repeatable": "as migration",
    "envelope": "payloads, erased when their round settles; their SHA-256 stands in delivery",
    "history_due": "what is not chained yet: a row that is taken away is missed (a test of its own), its order is free",
}
# Columns of audited tables that it does not cover, and why.
NOT_COVERED = {
    ("deployment", "singleton"): "always true, so that there is one row",
    ("history_import", "singleton"): "always true, so that there is one row",
    ("history_import", "next_round"): "how far the import has come; what lacks a record is found whatever it says",
    ("history_import", "next_rejection"): "as next_round",
    ("round", "news"): "a hint for coordinators, no fact",
    ("coordinator", "heartbeat_at"): "changes twice a second, and says nothing about a round",
    ("coordinator", "holds_life"): "a hint for peers, no fact",
    ("coordinator", "cleared_at"): "a hint for peers, no fact",
}
OTHER = {
    "smallint": "{c} + 1", "integer": "{c} + 1", "bigint": "{c} + 1", "boolean": "NOT {c}", "text": "{c} || 'x'", "name": "'mallory'",
    "timestamp with time zone": "{c} + interval '1 microsecond'", "interval": "{c} + interval '1 microsecond'",
    "bytea": "CASE WHEN {c} = '' THEN '\\x00' ELSE set_byte({c}, octet_length({c}) - 1, get_byte({c}, octet_length({c}) - 1) # 1) END",
    "uuid": "gen_random_uuid()", "smallint[]": "array_append({c}, 9::smallint)", "integer[]": "array_append({c}, 9)",
    "text[]": "array_append({c}, 'x')",
    "json": "'{{}}'"}
SOME = {"smallint": "1", "integer": "1", "bigint": "1", "boolean": "true", "text": "'x'", "timestamp with time zone": "now()",
        "interval": "'1 s'", "bytea": "'x'", "smallint[]": "'{{1}}'", "integer[]": "'{{1}}'", "text[]": "'{{x}}'", "json": "'{{}}'", "name": "'mallory'"}


class Tamperer:
    def __init__(self, conninfo: str):
        self.conn = psycopg.connect(conninfo, autocommit=True)
        for table in self.tables(with_others=True):
            self.run("ALTER TABLE {} DISABLE TRIGGER ALL", table)
            for (column,) in self.all("SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attidentity <> ''", f"quorate_store.{table}"):
                self.run("ALTER TABLE {} ALTER COLUMN {} DROP IDENTITY", table, column)
        for table, name in self.all("SELECT c.relname, n.conname FROM pg_constraint n JOIN pg_class c ON c.oid = n.conrelid "
                                    "WHERE c.relnamespace = 'quorate_store'::regnamespace AND n.contype IN ('c', 'f')"):
            self.run("ALTER TABLE {} DROP CONSTRAINT {}", table, name)
        for index, in self.all("SELECT i.relname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid "
                               "WHERE i.relnamespace = 'quorate_store'::regnamespace AND i.relname = 'checkpoint_key_seq_key'"):
            self.run("ALTER TABLE {} DROP CONSTRAINT {}", "checkpoint", index)

    def all(self, query, *parameters):
        return self.conn.execute(query, parameters).fetchall()

    def run(self, statement, table, *names, more=""):
        """Where the statement says {}: the table, then these names."""
        return self.conn.execute(sql.SQL(statement).format(sql.Identifier("quorate_store", table), *map(sql.Identifier, names)) + sql.SQL(more))

    def tables(self, with_others=False):
        return [name for (name,) in self.all("SELECT relname FROM pg_class WHERE relnamespace = 'quorate_store'::regnamespace AND relkind = 'r' ORDER BY 1")
                if with_others or name not in NOT_AUDITED]

    def columns(self, table):
        """(name, type) of each."""
        return self.all("SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 "
                        "AND NOT attisdropped ORDER BY attnum", f"quorate_store.{table}")

    def changes(self, table, column, kind):
        """SQL values, each another one than the column has, with the condition of the rows that they are another one for."""
        other = OTHER.get(kind)
        if other is None:  # an enum
            labels = [f"'{label}'::{kind}" for (label,) in self.all("SELECT enumlabel FROM pg_enum WHERE enumtypid = %s::regtype ORDER BY enumsortorder", kind)]
            other = f"CASE WHEN {{c}} = {labels[0]} THEN {labels[-1]} ELSE {labels[0]} END"
            some = labels[0]
        else:
            some = SOME.get(kind, "'x'").format()
        yield other.format(c=f'"{column}"'), f'"{column}" IS NOT NULL'
        yield some, f'"{column}" IS NULL'
        nullable = self.all("SELECT NOT attnotnull FROM pg_attribute WHERE attrelid = %s::regclass AND attname = %s", f"quorate_store.{table}", column)[0][0]
        if nullable:
            yield "NULL", f'"{column}" IS NOT NULL'

    def change_one(self, table, column, value, where):
        """The newest row that can be changed so; false when there is none."""
        for (place,) in self.all(f'SELECT ctid::text FROM quorate_store."{table}" WHERE {where} ORDER BY ctid DESC'):
            try:
                self.conn.execute(f'UPDATE quorate_store."{table}" SET "{column}" = {value} WHERE ctid = \'{place}\'')
                return True
            except psycopg.errors.UniqueViolation:
                continue  # another row stands there already
        return False

    @contextlib.contextmanager
    def undone(self, *tables):
        """What is done to these tables inside is put back."""
        for table in tables:
            self.conn.execute(sql.SQL("CREATE TABLE public.{} AS SELECT * FROM {}").format(
                sql.Identifier(f"saved_{table}"), sql.Identifier("quorate_store", table)))
        try:
            yield
        finally:
            for table in tables:
                self.run("DELETE FROM {}", table)
                self.conn.execute(sql.SQL("INSERT INTO {} SELECT * FROM public.{}").format(
                    sql.Identifier("quorate_store", table), sql.Identifier(f"saved_{table}")))
                self.conn.execute(sql.SQL("DROP TABLE public.{}").format(sql.Identifier(f"saved_{table}")))
