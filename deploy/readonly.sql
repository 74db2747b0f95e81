-- The user of a lab that is shared for reading (RL_LAB_READ_ONLY=1): it may SELECT, also what later versions add.
-- An administrator runs it in the lab's database; `owner` is the user of the lab that writes:
--   psql --set=owner=lab --set=reader=lab_reader --file=deploy/readonly.sql lab
-- Then give the reader a password: \password lab_reader
CREATE ROLE :"reader" LOGIN;
ALTER ROLE :"reader" SET default_transaction_read_only = on;
GRANT USAGE ON SCHEMA public TO :"reader";
GRANT SELECT ON ALL TABLES IN SCHEMA public TO :"reader";
ALTER DEFAULT PRIVILEGES FOR ROLE :"owner" IN SCHEMA public GRANT SELECT ON TABLES TO :"reader";
