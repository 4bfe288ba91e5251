package demo

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	shopProducts = 120
	shopPerPage  = 20
	shopPages    = shopProducts / shopPerPage
)

// newShop is shop.example: listing pages that link to product pages, and one record per product page.
// Prices come in the spellings that shops use, every ninth product page still has an older design, and
// the week's favourite stands on every listing page.
func newShop() *Site {
	s := newSite("shop", "shop.example", "Lantern & Loom sells things for a quiet house. It exists on this machine only.")

	products := make([]product, shopProducts)
	for i := range products {
		products[i] = newProduct(i)
	}
	for i := range products {
		for _, step := range []int{7, 31, 58} {
			products[i].Also = append(products[i].Also, products[(i+step)%len(products)].card())
		}
	}

	for n := range shopPages {
		first := n * shopPerPage
		listing := shopListing{Page: n + 1, Pages: shopPages, Total: shopProducts, First: first + 1}
		favourite := products[shopProducts/3].card()
		favourite.Featured = true
		listing.Products = append(listing.Products, favourite)
		for _, p := range products[first : first+shopPerPage] {
			listing.Products = append(listing.Products, p.card())
		}
		uri := shopListingURI(n)
		if n > 0 {
			listing.Previous = shopListingURI(n - 1)
			s.faults[uri] = bout{fault: cycle[(n-1)%len(cycle)], times: 1}
		}
		if n+1 < shopPages {
			// Relative to this page, and without its path: what a resolver gets wrong first.
			listing.Next = fmt.Sprintf("?page=%d", n+2)
		}
		s.add(uri, htmlUTF8, render("shop_listing.html", listing))
	}
	for i, p := range products {
		s.add(p.Href, htmlUTF8, render("shop_product.html", p))
		s.add(p.Image, "image/svg+xml", p.picture())
		s.faults[p.Href] = deal(i, 10)
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

// kinds, materials and the rest are what product names and texts are made of. Their lengths share no
// factor with each other, so that the combinations differ for long.
var (
	kinds = []struct{ name, shelf string }{
		{"Reading Lamp", "Lighting"}, {"Wool Throw", "Textiles"}, {"Teapot", "Kitchen"}, {"Bookend", "Study"},
		{"Candle Holder", "Lighting"}, {"Cushion", "Textiles"}, {"Pepper Mill", "Kitchen"}, {"Desk Tray", "Study"},
		{"Wall Clock", "Study"}, {"Café Cup", "Kitchen"}, {"Floor Lantern", "Lighting"},
	}
	materials = []string{"Walnut", "Oak", "Brass", "Linen", "Stoneware", "Copper", "Cork"}
	makers    = []string{"Ådal", "Brontë & Sons", "Čapek", "Fjord", "O'Malley"}
	features  = []string{
		"Made to be repaired", "Arrives in paper, not plastic", "Weighs < 2 kg", "Safe in a dishwasher",
		"Ten years' guarantee", "Finished by hand", "From certified forests", "Fits 12″ shelves",
		"Sold without a plug", "No two are the same", "Smells of nothing", "Spare parts: €5 each",
	}
	openings = []string{
		"It does one thing, and it does it without noise.",
		"“The only one I kept,” says a customer who owns three.",
		"We tried to find a fault in it for a year; we found two & mended both.",
		"Heavier than it looks, lighter than it was.",
	}
)

func newProduct(i int) product {
	kind, material, maker := kinds[i%len(kinds)], materials[i%len(materials)], makers[i%len(makers)]
	sku := fmt.Sprintf("LL-%04d", 1000+i*7)
	p := product{
		SKU:        sku,
		Name:       fmt.Sprintf("%s %s No. %d", material, kind.name, i+1),
		Href:       "/thing/" + strings.ToLower(strings.ReplaceAll(kind.name, " ", "-")) + "-" + strings.ToLower(sku) + ".html",
		Image:      "/pictures/" + strings.ToLower(sku) + ".svg",
		Breadcrumb: []string{"Home", kind.shelf, kind.name + "s"},
		Cents:      995 + i*i*37%180000 + i*113,
		Stock:      i * 5 % 23,
		RatingText: fmt.Sprintf("%d.%d", 2+i%3, i*3%10),
		Legacy:     i%9 == 4,
	}
	p.Href = strings.ReplaceAll(p.Href, "é", "e")
	p.PriceText = spellPrice(p.Cents, i)
	p.StockText = fmt.Sprintf("In stock (%d left)", p.Stock)
	if p.Stock == 0 {
		p.StockText = "Sold out (0 left)"
	}
	p.Stars = strings.Repeat("★", 2+i%3) + strings.Repeat("☆", 3-i%3)
	p.Description = fmt.Sprintf("%s The %s of %s by %s comes with number %d on its back.",
		openings[i%len(openings)], strings.ToLower(kind.name), strings.ToLower(material), maker, i+1)
	for k := range 2 + i%4 {
		p.Features = append(p.Features, features[(i+k*5)%len(features)])
	}
	return p
}

// spellPrice writes an amount in one of the ways in which shops do. All of them say the same.
func spellPrice(cents, way int) string {
	whole, frac := cents/100, cents%100
	switch way % 7 {
	case 0:
		return fmt.Sprintf("%s,%02d €", group(whole, "."), frac) // 1.234,56 €
	case 1:
		return fmt.Sprintf("€%s.%02d", group(whole, ","), frac) // €1,234.56
	case 2:
		return fmt.Sprintf("%s,%02d €", group(whole, "\u00a0"), frac) // 1 234,56 €, no-break spaces
	case 3:
		return fmt.Sprintf("EUR %d.%02d", whole, frac) // EUR 1234.56
	case 4:
		return fmt.Sprintf("%s.%02d €", group(whole, "'"), frac) // 1'234.56 €
	case 5:
		return fmt.Sprintf("Now only € %s,%02d", group(whole, "."), frac) // words around it
	default:
		return fmt.Sprintf("%s,%02d EUR", group(whole, "\u202f"), frac) // narrow no-break spaces
	}
}

// group puts a separator between the thousands.
func group(n int, separator string) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return group(n/1000, separator) + separator + fmt.Sprintf("%03d", n%1000)
}

func (p product) card() productCard {
	return productCard{Name: p.Name, Href: p.Href, Image: p.Image, Price: p.PriceText}
}

// picture is a drawing of the product, so that the shop looks like one in a browser.
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
