package store

// RequestKey is a string: what a job scrapes and how, as JSON. It expires a week
// after the job's last step.
func RequestKey(job string) string { return "muster:sites:" + job + ":request" }

// PrintsKey is a hash: hash of the links and records of a listing page → ID and address of the first page with them. It
// expires like the request.
func PrintsKey(job string) string { return "muster:sites:" + job + ":prints" }

// DeepKey is a set: IDs of pages that were found beyond limits.max_depth, about 10,000 at most. It expires like the
// request.
func DeepKey(job string) string { return "muster:sites:" + job + ":deep" }

// WantedKey is a hash like SpentKey, of a job with a limit: its detail pages, or its records of a type from listing pages.
// It expires like the request.
func WantedKey(job, of string) string { return "muster:sites:" + job + ":wanted:" + of }

// FieldsKey is a set: the kinds of page that have had their required fields in
// a job. It expires like the request.
func FieldsKey(job string) string { return "muster:sites:" + job + ":fields" }

// ResumedKey is a string that exists once a job that resumes another has put
// the failed pages of that one back. It expires like the request.
func ResumedKey(run string) string { return "muster:sites:" + run + ":resumed" }

// CountedKey is a string: the summary of a job whose pages are all done, as
// JSON, as far as Redis knows it: the writer of its records completes it. It
// expires like the request.
func CountedKey(run string) string { return "muster:sites:" + run + ":counted" }

// SummaryKey is a string: the summary of a job whose files are closed, as JSON.
// It expires like the request.
func SummaryKey(run string) string { return "muster:sites:" + run + ":summary" }

// OpenJobsKey is a set: the jobs that have records to write, or will have.
const OpenJobsKey = "muster:sites:open-jobs"

// ProgressKey is a sorted set: open jobs by when their last page was settled, in unix milliseconds. A job is removed when
// it is over.
const ProgressKey = "muster:sites:progress"

// WritersKey is a sorted set: where each process writes records, as JSON, by
// when that expires, in unix milliseconds. Expired members are removed, and the
// set expires half a minute after the last.
const WritersKey = "muster:sites:writers"

// JobsKey is a sorted set: jobs by when they began, in unix milliseconds. Jobs
// whose other keys have expired are removed.
const JobsKey = "muster:sites:jobs"

// HealthKey is a hash: job → the health of its site, as JSON. It expires a week
// after the site's last job.
func HealthKey(site string) string { return "muster:sites:health:" + site }

// HealthSitesKey is a set: the sites that have a HealthKey, or had one.
const HealthSitesKey = "muster:sites:health-sites"

// PausedSitesKey is a set: the sites that are paused.
const PausedSitesKey = "muster:sites:paused-sites"

// SpentKey is a hash: records and bytes, the totals of a job that has limits on
// them; and by page, how many of its records were kept. It expires like the
// request.
func SpentKey(job string) string { return "muster:sites:" + job + ":spent" }

// ProxyUsageKey is a hash: "good PROXY" and "bad PROXY" → how many answers of a
// job came through that proxy and were pages, or were not. It expires like the
// request.
func ProxyUsageKey(job string) string { return "muster:sites:" + job + ":proxy-usage" }

// SessionEndsKey is a hash: why sessions of a job have ended → how many. It
// expires like the request.
func SessionEndsKey(job string) string { return "muster:sites:" + job + ":session-ends" }

// DelaysKey is a hash: why pages of a job were delayed → how often. It expires
// like the request.
func DelaysKey(job string) string { return "muster:sites:" + job + ":delays" }
