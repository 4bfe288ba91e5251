package main

import "strings"

// examples lists example command lines for commands whose description has none.
// They are printed at the end of the command's help.
var examples = map[string]string{
	"demo":   "muster demo\nmuster demo --keep              # and explore the web UI",
	"start":  "muster start\nmuster start --setting workers.processes=4\nmuster start --once --json > round.json",
	"worker": "muster worker --redis redis://host:6379/0 --setting workers.concurrency=20",
	"scrape": "muster scrape books.toscrape.com --wait\nmuster scrape shop.yaml --direct --out - | jq .title\nmuster scrape https://books.toscrape.com/ --limit 10 --csv",

	"scrapes list":   "muster scrapes list books.toscrape.com",
	"scrapes get":    "muster scrapes get books.toscrape.com --wait",
	"scrapes retry":  "muster scrapes retry books.toscrape.com --wait",
	"scrapes cancel": "muster scrapes cancel books.toscrape.com",

	"sites list":  "muster sites list",
	"sites init":  "muster sites init https://shop.example/lamps --out shop.yaml",
	"sites get":   "muster sites get books.toscrape.com > mine.yaml",
	"sites check": "muster sites check shop.yaml\nmuster sites check --live shop.yaml",
	"sites test":  "muster sites test shop.yaml --cache pages",
	"sites try":   "muster sites try https://shop.example/lamps h3\nmuster sites try page.html --each .product h3 '{css: .price, type: price}'",

	"sites history": "muster sites history shop.example https://shop.example/item/7",

	"proxies refresh": "muster proxies refresh\nmuster proxies refresh --source list.txt,https://lists.example/socks5.txt",
	"proxies list":    "muster proxies list --limit 20\nmuster proxies list --stats\nmuster proxies list --site shop.example --json | jq -r '.[].id'",
	"proxies check":   "muster proxies check socks5://198.51.100.7:1080\nmuster proxies check --alive --file list.txt\nmuster proxies check --target https://shop.example/ --expect 'Our lamps'\nmuster proxies check --add http://198.51.100.7:8080",
	"proxies delete":  "muster proxies delete 198.51.100.7",
	"proxies unban":   "muster proxies unban 198.51.100.7:8080",
	"proxies ban":     "muster proxies ban 198.51.100.7:8080 --site shop.example --for 24h",
	"proxies export":  "muster proxies export backup\nmuster proxies export - | shuf -n 1\nmuster proxies export --format csv - > pool.csv",
	"proxies serve":   "muster proxies serve --listen 127.0.0.1:8089\ncurl -x http://127.0.0.1:8089 https://shop.example/",

	"store copy": "muster store copy --to redis://host:6379/0",

	"queue enqueue":      "muster queue enqueue doi:10.1/x '{\"url\": \"https://example.org/x.pdf\"}'",
	"queue import":       "muster queue import artifacts.jsonl --queue papers",
	"queue run":          "muster queue run --drain --workers 8",
	"queue stats":        "muster queue stats\nwatch muster queue stats",
	"queue forget":       "muster queue forget --ended-for 168h\nmuster queue forget doi:10.1/x",
	"queue delete":       "muster queue delete --queue papers",
	"queue retry-failed": "muster queue retry-failed --dry-run\nmuster queue retry-failed --max-attempts 5",

	"judge":            "muster judge --listen 0.0.0.0:8088",
	"render":           "muster render --listen 0.0.0.0:8090 --key-file render.key",
	"dashboard":        "muster dashboard --redis redis://host:6379/0",
	"keys list":        "muster keys list",
	"keys revoke":      "muster keys revoke ci",
	"audit":            "muster audit --caller ci --since 24h",
	"agents delete":    "muster agents delete reviewer-1",
	"webhooks list":    "muster webhooks list",
	"webhooks get":     "muster webhooks get ops --state failed",
	"webhooks delete":  "muster webhooks delete ops",
	"webhooks enable":  "muster webhooks enable ops",
	"webhooks disable": "muster webhooks disable ops",
	"webhooks send":    "muster webhooks send ops\nmuster webhooks send ops 1735689600000-0",
	"health":           "muster health\nmuster health --url http://localhost:8000/health",

	"workflows list":      "muster workflows list --state failure --since 1h\nmuster workflows list --label book=owls",
	"workflows get":       "muster workflows get ID\nmuster workflows get ID --result | jq .",
	"workflows send":      "muster workflows send mail.send '{\"to\": \"ops\"}'\nmuster workflows send report.build '\"2027-01\"' --wait --timeout 5m",
	"workflows cancel":    "muster workflows cancel ID\nmuster workflows cancel --all --name import",
	"workflows retry":     "muster workflows retry ID --input '2={\"amount\": 100}'\nmuster workflows retry --all --name import --since 24h",
	"workflows run-again": "muster workflows run-again ID --from 2 --input '2={\"amount\": 90}'",
	"workflows output":    "muster workflows output ID --node 2",
	"workflows revoke":    "muster workflows revoke ID --node 3",
	"tasks list":          "muster tasks list --state open --task article.review\nmuster tasks list --stats --since 24h --step hour",
	"tasks complete":      "muster tasks complete WORKFLOW NODE --result '{\"approved\": true}'\nmuster tasks complete WORKFLOW NODE --error 'not approved' --permanent",
	"workers list":        "muster workers list --timeout 5s\nmuster workers list --tasks",
	"queues list":         "muster queues list",
	"limits list":         "muster limits list",
	"limits set":          "muster limits set billing-api 5 --key acme",
	"limits hold":         "muster limits hold billing-api 30s",
	"schedules list":      "muster schedules list\nmuster schedules list customer- --label region=eu",
	"schedules put":       "muster schedules put nightly '0 3 * * *' report.build '\"all\"' --overlap queue --jitter 5m\nmuster schedules put weekly '0 6 * * 1' jobs.create '{\"prompt\": \"Check all\"}' --queue orchestrator",
	"schedules trigger":   "muster schedules trigger nightly\nmuster schedules trigger nightly --from 2027-01-01T00:00:00Z",
	"schedules delete":    "muster schedules delete nightly",
	"workflows delete":    "muster workflows delete ID",

	"config":         "muster config | grep '^sites'\nmuster config --check muster.yaml",
	"breakers list":  "muster breakers list",
	"breakers reset": "muster breakers reset shop.example\nmuster breakers reset --all",
}

// withExample appends the example of a command to its description.
func withExample(path, text string) string {
	example := examples[strings.TrimPrefix(path, "muster ")]
	if example == "" {
		return text
	}
	return strings.TrimPrefix(text+"\n\n    "+strings.ReplaceAll(example, "\n", "\n    "), "\n\n")
}
