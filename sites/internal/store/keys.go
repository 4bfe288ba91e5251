package store

// RequestKey is a string: the request of a job as JSON. It expires a week after the job's last step.
func RequestKey(job string) string { return "muster:sites:" + job + ":request" }

// PrintsKey is a hash: hash of the links and records of a listing page → ID and address of the first page with them. It
// expires like the request.
func PrintsKey(job string) string { return "muster:sites:" + job + ":prints" }

// KnownKey is a hash: ID of a page of the site's ledger → its [Page] as JSON; and "", once all are there. It exists while a job with
// refetch runs, and expires like the request.
func KnownKey(job string) string { return "muster:sites:" + job + ":known" }

// ResumedKey is a string that exists after a resuming job has requeued the failed pages. It expires like the request.
func ResumedKey(run string) string { return "muster:sites:" + run + ":resumed" }

// CountedKey is a string: the summary of a job with only terminal pages, as JSON and without the files, which the writer of its
// records adds. It expires like the request.
func CountedKey(run string) string { return "muster:sites:" + run + ":counted" }

// SummaryKey is a string: the summary of a job with closed files, as JSON. It expires like the request.
func SummaryKey(run string) string { return "muster:sites:" + run + ":summary" }

// OpenJobsKey is a set: the jobs that have or will have records to write.
const OpenJobsKey = "muster:sites:open-jobs"

// WritersKey is a sorted set: the directories and sinks of each writing process, as JSON, by expiry time in unix milliseconds.
// Expired members are removed, and the set expires half a minute after the last.
const WritersKey = "muster:sites:writers"

// JobsKey is a sorted set: "job site" of each job by its start time in unix milliseconds. Jobs that began a week ago are removed.
const JobsKey = "muster:sites:jobs"

// HealthKey is a hash: job → the health of its site, as JSON. It expires a week
// after the site's last job.
func HealthKey(site string) string { return "muster:sites:health:" + site }

// HealthSitesKey is a set: the sites that have or had a HealthKey.
const HealthSitesKey = "muster:sites:health-sites"

// PausedSitesKey is a set: the paused sites.
const PausedSitesKey = "muster:sites:paused-sites"

// SpentKey is a hash: records and bytes, the totals of a job with limits on them; and by page, the number of its kept records. It
// expires like the request.
func SpentKey(job string) string { return "muster:sites:" + job + ":spent" }

// CountsKey is a hash of counts of a job: "delay REASON" of delays of pages, "session REASON" of ended sessions, and "good PROXY" and
// "bad PROXY" of responses through a proxy with and without a page. It expires like the request.
func CountsKey(job string) string { return "muster:sites:" + job + ":counts" }
