package demo

import (
	"fmt"
	"strconv"
)

const shopPerPage = 20

// newShop returns shop.example: listing pages with links to product pages, and one record per product page from
// data/products.jsonl. Prices have various formats, every ninth product page has an older layout, and the favorite of the week is
// on every listing page.
func newShop() *Site {
	s := newSite("shop", "shop.example", "Lantern & Loom sells things for a quiet house. It exists on this machine only.")

	products := load[product]("products.jsonl")
	pages := len(products) / shopPerPage
	for i := range products {
		for _, step := range []int{7, 31, 58} {
			products[i].Also = append(products[i].Also, products[(i+step)%len(products)].card())
		}
	}

	for n := range pages {
		first := n * shopPerPage
		listing := shopListing{Page: n + 1, Pages: pages, Total: len(products), First: first + 1}
		favourite := products[len(products)/3].card()
		favourite.Featured = true
		listing.Products = append(listing.Products, favourite)
		for _, p := range products[first : first+shopPerPage] {
			listing.Products = append(listing.Products, p.card())
		}
		uri := shopListingURI(n)
		if n > 0 {
			listing.Previous = shopListingURI(n - 1)
			s.faults[uri] = plan{fault: cycle[(n-1)%len(cycle)], times: 1}
		}
		if n+1 < pages {
			// Relative, without a path, to test URL resolution.
			listing.Next = fmt.Sprintf("?page=%d", n+2)
		}
		s.add(uri, htmlUTF8, render("shop_listing.html", listing))
	}
	for i, p := range products {
		s.add(p.Href, htmlUTF8, render("shop_product.html", p))
		s.add(p.Image, "image/svg+xml", p.picture())
		s.faults[p.Href] = planFor(i, 12)
		s.truth = append(s.truth, p.record())
	}
	s.add("/cart", htmlUTF8, render("text.html", text{Title: "Cart", Paragraphs: []string{"Your cart is empty."}}))
	return s
}

func shopListingURI(n int) string {
	if n == 0 {
		return "/"
	}
	return fmt.Sprintf("/?page=%d", n+1)
}

type shopListing struct {
	Page, Pages, Total, First int
	Previous, Next            string
	Products                  []productCard
}

type productCard struct {
	Name, Href, Image, Price string
	Featured                 bool
}

// product is a line of data/products.jsonl, except Also.
type product struct {
	SKU, Name, Href, Image string
	Breadcrumb             []string
	Cents                  int
	PriceText              string
	Stock                  int
	StockText              string
	RatingText, Stars      string
	Description            string
	Features               []string
	Legacy                 bool
	Also                   []productCard
}

func (p product) card() productCard {
	return productCard{Name: p.Name, Href: p.Href, Image: p.Image, Price: p.PriceText}
}

// picture returns a generated image of the product.
func (p product) picture() []byte {
	hue := p.Cents % 360
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 160 160"><rect width="160" height="160" fill="hsl(%d 30%% 88%%)"/><circle cx="80" cy="72" r="%d" fill="hsl(%d 45%% 55%%)"/><rect x="72" y="72" width="16" height="60" fill="hsl(%d 25%% 35%%)"/></svg>`,
		hue, 22+p.Stock, hue, hue)
}

func (p product) record() Record {
	return Record{
		"_type":       "product",
		"sku":         p.SKU,
		"name":        p.Name,
		"price":       map[string]any{"amount": float64(p.Cents) / 100, "currency": "EUR"},
		"stock":       p.Stock,
		"rating":      must(strconv.ParseFloat(p.RatingText, 64)),
		"category":    p.Breadcrumb[len(p.Breadcrumb)-1],
		"description": p.Description,
		"features":    p.Features,
		"image":       "http://shop.example" + p.Image,
	}
}
