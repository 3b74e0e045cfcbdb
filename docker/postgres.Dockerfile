# PostgreSQL from Debian's own package, for places that reach no image registry. It does what compose.yaml needs of the
# official image: POSTGRES_USER and POSTGRES_DB at the first start, and trust.
FROM debian:bookworm-slim
RUN mkdir -p /etc/postgresql-common/createcluster.d \
    && echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.d/none.conf \
    && apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends postgresql-15 \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o postgres -g postgres -m 700 /var/lib/postgresql/data
ENV PATH=/usr/lib/postgresql/15/bin:$PATH PGDATA=/var/lib/postgresql/data
USER postgres
STOPSIGNAL SIGINT
EXPOSE 5432
CMD ["sh", "-euc", "\
    if ! test -e $PGDATA/PG_VERSION; then \
        initdb --username=$POSTGRES_USER --auth=trust --encoding=UTF8 --locale=C.UTF-8 >/dev/null; \
        echo 'host all all all trust' >>$PGDATA/pg_hba.conf; \
        echo \"CREATE DATABASE $POSTGRES_DB\" | postgres --single postgres >/dev/null; \
    fi; \
    exec postgres -c listen_addresses='*'"]
