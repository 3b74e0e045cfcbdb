-- Ends a re-application of sql/: what could not be done stays pending, so that `quorate migrate` does it the next time.

DELETE FROM quorate_store.repeatable WHERE name = '95_roles.sql' AND EXISTS (SELECT FROM quorate_roles r WHERE to_regrole(r.role) IS NULL);
