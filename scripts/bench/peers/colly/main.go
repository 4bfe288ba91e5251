// Command colly scrapes the site of the benchmark with colly, in memory, and
// prints how many pages of items it had and in how many seconds.
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gocolly/colly/v2"
)

type item struct {
	sku, name, price, stock, rating, seller, text string
	tags                                          []string
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: colly URL CONNECTIONS")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "colly:", err)
		os.Exit(1)
	}
}

func run(base, connections string) error {
	parallel, err := strconv.Atoi(connections)
	if err != nil {
		return fmt.Errorf("connections: %w", err)
	}
	c := colly.NewCollector(colly.Async(true), colly.MaxBodySize(16<<20))
	if err := c.Limit(&colly.LimitRule{DomainGlob: "*", Parallelism: parallel}); err != nil {
		return err
	}
	var mu sync.Mutex // guards items and failed
	var items []item
	var failed error
	visit := func(e *colly.HTMLElement) {
		if err := e.Request.Visit(e.Attr("href")); err != nil {
			mu.Lock()
			failed = err
			mu.Unlock()
		}
	}
	c.OnHTML("a.next", visit)
	c.OnHTML(".item a", visit)
	c.OnError(func(_ *colly.Response, err error) {
		mu.Lock()
		failed = err
		mu.Unlock()
	})
	c.OnHTML("html", func(e *colly.HTMLElement) {
		if !strings.Contains(e.Request.URL.Path, "/item/") {
			return
		}
		it := item{
			sku: e.ChildAttr("[data-sku]", "data-sku"), name: e.ChildText("h1.name"), price: e.ChildText(".price"), stock: e.ChildText(".stock"),
			rating: e.ChildAttr(".rating", "data-rating"), tags: e.ChildTexts(".tags li"), seller: e.ChildText(".seller b"), text: e.ChildText(".description p"),
		}
		if it.seller == "" {
			it.seller = e.ChildText(".shop")
		}
		mu.Lock()
		items = append(items, it)
		mu.Unlock()
	})
	began := time.Now()
	if err := c.Visit(base + "/list/0"); err != nil {
		return err
	}
	c.Wait()
	if failed != nil {
		return failed
	}
	fmt.Println(len(items), time.Since(began).Seconds())
	return nil
}
