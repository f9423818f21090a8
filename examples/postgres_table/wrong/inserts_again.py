"""The wrong twin: its table has no key, so that an INSERT which took effect and is repeated doubles its rows."""

from __future__ import annotations

import bills_job

bills_job.TABLE = 'CREATE TABLE IF NOT EXISTS bills ("order" int NOT NULL, total int NOT NULL)'
bills_job.INSERT = 'INSERT INTO bills ("order", total) SELECT * FROM unnest(%s::int[], %s::int[])'

if __name__ == "__main__":
    bills_job.main()
