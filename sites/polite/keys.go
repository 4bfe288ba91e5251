package polite

// throttleKey is a hash: base, the shortest time lately in which a site
// answered, and delay, what its answers ask for, both in microseconds. It
// expires an hour after the last answer.
func throttleKey(site string) string { return "muster:sites:throttle:" + site }

// failuresKey is a set: the pages of a site that failed at their first try since
// the last page that came ("page ID"), and the proxies through which pages
// failed ("via PROXY"), or that none was used ("direct"). It expires ten minutes
// after the last failure.
func failuresKey(site string) string { return "muster:sites:failures:" + site }
