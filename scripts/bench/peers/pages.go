package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// pages is how many pages a second Muster and a scraper fetched.
type pages struct {
	Peer         string
	Ours, Theirs float64
}

// scrapePages runs the rows of the benchmark (scripts/bench) that scrape a site on this machine.
func scrapePages(ctx context.Context) ([]pages, error) {
	say("scraping 10,000 pages of a local site with Muster, colly and Scrapy")
	ctx, cancel := context.WithTimeout(ctx, 6*time.Minute)
	defer cancel()
	// It exits with 1 if a row is outside its bar, and prints all rows.
	out, err := output(ctx, "../../..", nil, "sh", "-c", "go run ./scripts/bench -json -rounds 1 -only sites.pages_of || test $? = 1")
	if err != nil {
		return nil, err
	}
	return parsePages([]byte(out))
}

func parsePages(raw []byte) ([]pages, error) {
	var rows []struct {
		Name      string   `json:"name"`
		Value     float64  `json:"value"`
		Yardstick *float64 `json:"yardstick"`
		Error     string   `json:"error"`
	}
	if err := json.Unmarshal(raw, &rows); err != nil {
		return nil, fmt.Errorf("read the rows of the benchmark: %w", err)
	}
	names := map[string]string{"sites.pages_of_colly": "colly", "sites.pages_of_scrapy": "Scrapy"}
	var all []pages
	for _, r := range rows {
		if r.Error != "" || r.Yardstick == nil || names[r.Name] == "" {
			return nil, fmt.Errorf("row %s of the benchmark: %s", r.Name, r.Error)
		}
		all = append(all, pages{names[r.Name], r.Value, *r.Yardstick})
	}
	return all, nil
}
