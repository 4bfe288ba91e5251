package sites

// specKey is a string: what a job scrapes and how, as JSON. It expires a week
// after the job's last step.
func specKey(job string) string { return "muster:sites:" + job + ":spec" }

// collectedKey is a string: what the listing pages of a job came to, as JSON.
// It expires like the spec.
func collectedKey(job string) string { return "muster:sites:" + job + ":collected" }

// turnKey is a string: when the next request to a site may be made, in
// microseconds of Redis's time. It expires when that is past.
func turnKey(site string) string { return "muster:sites:turn:" + site }

// writerKey is a hash: owner and until, which process writes the records of
// a job, and until when in milliseconds of Redis's time. It expires like the
// spec.
func writerKey(job string) string { return "muster:sites:" + job + ":writer" }

// resumedKey is a string that is there when a job that resumes another has
// put its failed pages back. It expires like the spec.
func resumedKey(run string) string { return "muster:sites:" + run + ":resumed" }
