package polite

// throttleKey is a hash: base, the shortest recent response time of a site, and delay, the delay between its
// requests, both in microseconds. It expires an hour after the last answer.
func throttleKey(site string) string { return "muster:sites:throttle:" + site }

// failuresKey is a set: the pages of a site whose first try failed since the last fetched page ("page ID"), and the
// proxies through which pages failed ("via PROXY"), or "direct" if one failed without a proxy. It expires ten minutes
// after the last failure.
func failuresKey(site string) string { return "muster:sites:failures:" + site }
