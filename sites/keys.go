package sites

// specKey is a string: what a job scrapes and how, as JSON. It expires a week
// after the job's last step.
func specKey(job string) string { return "muster:sites:" + job + ":spec" }

// collectedKey is a string: what the listing pages of a job came to, as JSON.
// It expires like the spec.
func collectedKey(job string) string { return "muster:sites:" + job + ":collected" }

// chunksKey is a hash: number of a chunk → the ids of its pages, packed. It is
// removed when the job is over, and expires like the spec.
func chunksKey(run string) string { return "muster:sites:" + run + ":chunks" }

// givenKey is a string: a page that a site has given to a job, as JSON. It
// expires like the spec.
func givenKey(job string) string { return "muster:sites:" + job + ":given" }

// fieldsKey is a set: the kinds of page that have had their required fields in
// a job. It expires like the spec.
func fieldsKey(job string) string { return "muster:sites:" + job + ":fields" }

// resumedKey is a string that is there when a job that resumes another has
// put its failed pages back. It expires like the spec.
func resumedKey(run string) string { return "muster:sites:" + run + ":resumed" }

// closingKey is a string: what aggregate counted, as JSON, for the writer to
// close the job with. It expires like the spec.
func closingKey(run string) string { return "muster:sites:" + run + ":closing" }

// closedKey is a string: the Summary of a job whose files are closed, as JSON.
// It expires like the spec.
func closedKey(run string) string { return "muster:sites:" + run + ":closed" }

// openKey is a set: the jobs that have records to write, or will have.
const openKey = "muster:sites:open"

// writingKey is a sorted set: where each process writes records, as JSON, by
// until when that holds, in unix milliseconds. Old ones are removed, and it
// expires half a minute after the last.
const writingKey = "muster:sites:writing"

// jobsKey is a sorted set: jobs by when they began, in unix milliseconds. What
// is older than the keys of its job is removed.
const jobsKey = "muster:sites:jobs"

// healthKey is a hash: job → how its site did, as JSON. It expires a week
// after the site's last job.
func healthKey(site string) string { return "muster:sites:health:" + site }

// healthSites is a set: the sites that have a healthKey, or had one.
const healthSites = "muster:sites:health"

// pausedKey is a set: the sites whose pages are not to be fetched for now.
const pausedKey = "muster:sites:paused"

// spentKey is a hash: records and bytes, what a job with such limits has of
// each; and by page, how many of its records were kept. It expires like the
// spec.
func spentKey(job string) string { return "muster:sites:" + job + ":spent" }

// waysKey is a hash: good or bad, and a proxy → how many answers of a job
// came by it that were pages, or were none. It expires like the spec.
func waysKey(job string) string { return "muster:sites:" + job + ":ways" }

// endingsKey is a hash: why sessions of a job have ended → how many. It expires
// like the spec.
func endingsKey(job string) string { return "muster:sites:" + job + ":endings" }

// slotsKey is a sorted set: "JOB TASK", the tasks of scrapes that hold a slot
// of a worker, by when they were last heard of, in unix milliseconds. Old ones
// are removed.
const slotsKey = "muster:sites:slots"

// wantsKey is a sorted set: the jobs that have tasks, by when the last of them
// could go on, in unix milliseconds. Old ones are removed.
const wantsKey = "muster:sites:wants"
