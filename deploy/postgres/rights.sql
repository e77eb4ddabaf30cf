-- Who may do what with a ledger on PostgreSQL. Its owner runs this once, and again after an upgrade of the ledger:
--
--     psql "$LEDGER" -v ON_ERROR_STOP=1 -f rights.sql
--     psql "$LEDGER" -c 'GRANT headcount_jobs TO counter'       -- somebody who runs jobs
--
-- headcount_readers look. headcount_jobs reserve, publish and give back. headcount_officers approve plans, and take that back.
-- Data sets and their limits are made by the owner alone. Nobody else changes a row, or deletes one.

BEGIN;

DO $$
DECLARE role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['headcount_readers', 'headcount_jobs', 'headcount_officers'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role);
        END IF;
    END LOOP;
END $$;
GRANT headcount_readers TO headcount_jobs, headcount_officers;

-- Whoever writes locks the one row of headcount_ledger, for which PostgreSQL asks for UPDATE of one of its columns. It is one
-- that means nothing: who may set `version` could pass the ledger off as one of a version that knows no approvals.
ALTER TABLE headcount_ledger ADD COLUMN IF NOT EXISTS locked integer;
DO $$
DECLARE other regrole;
BEGIN
    FOR other IN
        SELECT DISTINCT given.grantee::regrole
        FROM pg_class, aclexplode(relacl) AS given
        WHERE pg_class.oid = 'headcount_ledger'::regclass AND given.grantee NOT IN (0, relowner)
    LOOP
        EXECUTE format('REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON headcount_ledger FROM %s', other);
    END LOOP;
END $$;
REVOKE ALL ON headcount_ledger FROM PUBLIC;
GRANT UPDATE (locked) ON headcount_ledger TO headcount_jobs, headcount_officers;

GRANT SELECT ON headcount_ledger, headcount_datasets, headcount_entries, headcount_changes, headcount_approved_only,
    headcount_approvals, headcount_approved, headcount_withdrawals, headcount_allowed TO headcount_readers;

GRANT INSERT ON headcount_entries, headcount_changes, headcount_allowed TO headcount_jobs;
GRANT USAGE ON SEQUENCE headcount_entries_id_seq, headcount_changes_id_seq TO headcount_jobs;

GRANT INSERT ON headcount_approvals, headcount_approved, headcount_withdrawals TO headcount_officers;
GRANT USAGE ON SEQUENCE headcount_approvals_id_seq, headcount_approved_id_seq TO headcount_officers;

COMMIT;
