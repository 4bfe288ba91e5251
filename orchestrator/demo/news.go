package demo

import (
	"fmt"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
)

const newsPerPage = 10

// newNews returns news.example: pages of story cards from data/stories.jsonl, and pages of their authors from data/authors.jsonl.
// Some pages use windows-1251, declared in the header, and some ISO-8859-1, declared in the page. One story is on several pages.
func newNews() *Site {
	s := newSite("news", "news.example", "The Harbour Ledger is a newspaper without news. It exists on this machine only.")

	stories, authors := load[story]("stories.jsonl"), load[author]("authors.jsonl")
	written := map[string]int{} // number of stories by the page of the author
	for _, st := range stories {
		written[st.AuthorHref]++
	}

	pages := len(stories) / newsPerPage
	for n := range pages {
		river := newsListing{Page: n + 1, charsetOf: newsCharset(n)}
		if n > 0 {
			river.Previous = newsListingURI(n - 1)
			s.faults[newsListingURI(n)] = plan{fault: cycle[(n+1)%len(cycle)], times: 1}
		}
		if n+1 < pages {
			river.Next = newsListingURI(n + 1)
		}
		if n%3 == 1 {
			pick := stories[3]
			pick.Pinned = true
			river.Cards = append(river.Cards, pick)
		}
		river.Cards = append(river.Cards, stories[n*newsPerPage:(n+1)*newsPerPage]...)
		s.add(newsListingURI(n), river.contentType(), river.encode(render("news_listing.html", river)))
	}
	s.add("/", htmlUTF8, render("text.html", text{Title: "The Harbour Ledger", Paragraphs: []string{"The latest is at /latest/1."}}))

	for _, st := range stories {
		s.add("/story/"+st.ID, htmlUTF8, render("text.html", text{Title: st.Title, Paragraphs: []string{st.Summary}}))
		s.truth = append(s.truth, st.record())
	}
	for i, a := range authors {
		a.charsetOf, a.Stories = charsetNamed(a.Charset), written[a.href()]
		s.add(a.href(), a.contentType(), a.encode(render("news_author.html", a)))
		s.faults[a.href()] = planFor(i, 4)
		s.truth = append(s.truth, a.record())
	}
	return s
}

func newsListingURI(n int) string { return fmt.Sprintf("/latest/%d", n+1) }

// charsetOf is the encoding of a page.
type charsetOf struct {
	Charset  string
	Declared bool // in the page; otherwise in the Content-Type header
	Lang     string
	charmap  *charmap.Charmap // nil for UTF-8
}

func charsetNamed(name string) charsetOf {
	switch name {
	case "windows-1251":
		return charsetOf{Charset: name, Lang: "bg", charmap: charmap.Windows1251}
	case "ISO-8859-1":
		return charsetOf{Charset: name, Declared: true, Lang: "en", charmap: charmap.ISO8859_1}
	default:
		return charsetOf{Charset: "utf-8", Declared: true, Lang: "en"}
	}
}

func (c charsetOf) contentType() string {
	if c.Declared {
		return "text/html"
	}
	return "text/html; charset=" + c.Charset
}

// encode encodes a page in the charset, with character references for unsupported characters.
func (c charsetOf) encode(page []byte) []byte {
	if c.charmap == nil {
		return page
	}
	return must(encoding.HTMLEscapeUnsupported(c.charmap.NewEncoder()).Bytes(page))
}

// newsCharset returns the charset of a listing page.
func newsCharset(n int) charsetOf {
	return charsetNamed([]string{"utf-8", "utf-8", "windows-1251", "ISO-8859-1"}[n%4])
}

type newsListing struct {
	charsetOf
	Page           int
	Previous, Next string
	Cards          []story
}

// story is a line of data/stories.jsonl, except Pinned.
type story struct {
	ID, Title, Summary string
	Author, AuthorHref string
	Published, Day     string
	Tags               []string
	Minutes, Comments  int
	CommentsText       string
	Pinned             bool
}

// author is a line of data/authors.jsonl, except charsetOf and Stories.
type author struct {
	charsetOf
	ID, Name, Role, City, Note string
	Since, Stories             int
	Beats                      []string
}

func (a author) href() string { return "/people/" + a.ID + "/" }

func (st story) record() Record {
	r := Record{
		"_type":     "story",
		"id":        st.ID,
		"title":     st.Title,
		"summary":   st.Summary,
		"author":    st.Author,
		"published": st.Published,
		"minutes":   st.Minutes,
		"comments":  st.Comments,
		"url":       "http://news.example/story/" + st.ID,
	}
	if len(st.Tags) > 0 { // empty fields are omitted
		r["tags"] = st.Tags
	}
	return r
}

func (a author) record() Record {
	return Record{
		"_type":   "author",
		"id":      a.ID,
		"name":    a.Name,
		"role":    a.Role,
		"city":    a.City,
		"since":   a.Since,
		"stories": a.Stories,
		"note":    a.Note,
		"beats":   a.Beats,
	}
}
