#!/bin/sh
# Run once by PostgreSQL's image, in an empty volume: the lab's user and database, then the user that may only read it.
set -eu
psql --set=ON_ERROR_STOP=1 --username=postgres --set=password="$LAB_PASSWORD" <<'SQL'
CREATE ROLE lab LOGIN PASSWORD :'password';
CREATE DATABASE lab OWNER lab;
SQL
psql --set=ON_ERROR_STOP=1 --username=postgres --dbname=lab --set=owner=lab --set=reader=lab_reader \
    --file=/deploy/readonly.sql
psql --set=ON_ERROR_STOP=1 --username=postgres --set=password="$READER_PASSWORD" <<'SQL'
ALTER ROLE lab_reader PASSWORD :'password';
SQL
