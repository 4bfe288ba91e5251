package demo

import (
	"fmt"
	"time"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
)

const (
	newsStories = 80
	newsPerPage = 10
	newsPages   = newsStories / newsPerPage
)

// newNews is news.example: a river of story cards, each a record, whose authors have pages that are
// records too. Parts of it speak windows-1251 and ISO-8859-1, said in the header here and in the page
// there, and an editor's pick stands on several pages.
func newNews() *Site {
	s := newSite("news", "news.example", "The Harbour Ledger is a newspaper without news. It exists on this machine only.")

	stories := make([]story, newsStories)
	written := make([]int, len(authors))
	for i := range stories {
		stories[i] = newStory(i)
		written[stories[i].author]++
	}

	for n := range newsPages {
		river := newsListing{Page: n + 1, charsetOf: newsCharset(n)}
		if n > 0 {
			river.Previous = newsListingURI(n - 1)
			s.faults[newsListingURI(n)] = bout{fault: cycle[(n+1)%len(cycle)], times: 1}
		}
		if n+1 < newsPages {
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
		a.Stories = written[i]
		s.add(a.href(), a.contentType(), a.encode(render("news_author.html", a)))
		s.faults[a.href()] = deal(i, 4)
		s.truth = append(s.truth, a.record())
	}
	return s
}

func newsListingURI(n int) string { return fmt.Sprintf("/latest/%d", n+1) }

// charsetOf is how a page is encoded and where it says so.
type charsetOf struct {
	Charset  string
	Declared bool // in the page itself; else in the Content-Type header
	Lang     string
	charmap  *charmap.Charmap // nil for UTF-8
}

var (
	unicode  = charsetOf{Charset: "utf-8", Declared: true, Lang: "en"}
	cyrillic = charsetOf{Charset: "windows-1251", Lang: "bg", charmap: charmap.Windows1251}
	latin    = charsetOf{Charset: "ISO-8859-1", Declared: true, Lang: "en", charmap: charmap.ISO8859_1}
)

func (c charsetOf) contentType() string {
	if c.Declared {
		return "text/html"
	}
	return "text/html; charset=" + c.Charset
}

// encode turns a page from UTF-8 into the charset; a letter that it lacks becomes a character reference.
func (c charsetOf) encode(page []byte) []byte {
	if c.charmap == nil {
		return page
	}
	return must(encoding.HTMLEscapeUnsupported(c.charmap.NewEncoder()).Bytes(page))
}

// newsCharset is the charset of a listing page.
func newsCharset(n int) charsetOf {
	switch n % 4 {
	case 2:
		return cyrillic
	case 3:
		return latin
	default:
		return unicode
	}
}

type newsListing struct {
	charsetOf
	Page           int
	Previous, Next string
	Cards          []story
}

type story struct {
	ID, Title, Summary string
	Author, AuthorHref string
	Published, Day     string
	Tags               []string
	Minutes, Comments  int
	CommentsText       string
	Pinned             bool
	author             int
}

type author struct {
	charsetOf
	ID, Name, Role, City, Note string
	Since, Stories             int
	Beats                      []string
}

var authors = []author{
	{unicode, "ada-lindqvist", "Ada Lindqvist", "Correspondent", "Göteborg", "She counts ships, and they count on her.", 2009, 0, []string{"ports", "weather"}},
	{cyrillic, "boris-stoyanov", "Борис Стоянов", "Редактор", "Варна", "Пише за морето, откакто се помни.", 2011, 0, []string{"море", "градът"}},
	{latin, "chloe-lefevre", "Chloé Lefèvre", "Columnist", "Saint-Malo", "Déjà vu is her beat.", 2014, 0, []string{"culture"}},
	{unicode, "dan-okafor", "Dan Okafor", "Reporter", "Lagos", "“Ask twice” is his rule & method.", 2016, 0, []string{"trade", "customs", "fuel"}},
	{cyrillic, "elena-dimitrova", "Елена Димитрова", "Кореспондент", "Бургас", "Разказва за хората зад новините – кратко и ясно.", 2018, 0, []string{"хора"}},
	{latin, "francois-noel", "François Noël", "Photographer", "Brest", "Où est l'appareil ?", 2012, 0, []string{"pictures", "sailing"}},
	{unicode, "greta-oz", "Greta Öz", "Data editor", "İzmir", "Draws what others say – in 3 colours.", 2020, 0, []string{"numbers"}},
	{cyrillic, "hristo-petrov", "Христо Петров", "Репортер", "Русе", "№ 1 по реката.", 2007, 0, []string{"реката", "пристанища"}},
	{latin, "ines-munoz", "Inés Muñoz", "Reporter", "A Coruña", "¿Por qué no?", 2015, 0, []string{"fish", "law"}},
	{unicode, "jun-sato", "佐藤 純", "Correspondent", "横浜", "港の記者。", 2013, 0, []string{"港", "weather"}},
	{cyrillic, "kalina-ivanova", "Калина Иванова", "Колумнист", "Созопол", "Пита „защо“, докато разбере.", 2019, 0, []string{"култура", "море"}},
	{latin, "lars-aeroe", "Lars Ærø", "Skipper at large", "Ærøskøbing", "Sejler først, spørger siden.", 2005, 0, []string{"sailing", "winds", "knots"}},
	{unicode, "mia-kovac", "Mia Kovač", "Reporter", "Rijeka", "Knows every crane by name.", 2021, 0, []string{"cranes"}},
	{cyrillic, "nikola-georgiev", "Никола Георгиев", "Фотограф", "Балчик", "Снима преди изгрев.", 2010, 0, []string{"снимки"}},
	{latin, "olaf-graess", "Olaf Größ", "Archivist", "Lübeck", "Früher war mehr Archiv.", 1998, 0, []string{"history", "paper"}},
	{unicode, "petra-vlk", "Petra Vlk", "Night desk", "Děčín", "Awake at 4:00 < coffee.", 2017, 0, []string{"night"}},
}

// streams, verbs and objects make headlines; a listing page in windows-1251 has headlines of its own.
var (
	streams    = []string{"Harbour", "Ferry line", "Fish market", "Lighthouse", "Dockyard", "Customs house", "Tide office"}
	doings     = []string{"reopens after", "asks for", "waits for", "says no to", "celebrates"}
	things     = []string{"a quiet winter", "two new cranes", "the “long Tuesday”", "fog & fewer ships"}
	openingsBG = []string{"Пристанището чака", "Фарът свети отново след", "Рибарите искат", "Градът посреща"}
	thingsBG   = []string{"нов кран", "тиха зима", "по-дълъг кей"}
	storyTags  = []string{"ports", "ships", "weather", "trade", "people", "море", "fish", "law", "été"}
)

// firstStory is when the newest story appeared. Each older one is 7 hours and 20 minutes before it.
var firstStory = time.Date(2026, time.March, 14, 18, 5, 0, 0, time.FixedZone("", 2*60*60))

func newStory(i int) story {
	by := i * 5 % len(authors)
	at := firstStory.Add(-time.Duration(i) * (7*time.Hour + 20*time.Minute))
	st := story{
		ID:        fmt.Sprintf("%s-%03d", at.Format("20060102"), newsStories-i),
		Title:     fmt.Sprintf("%s %s %s", streams[i%len(streams)], doings[i%len(doings)], things[i/3%len(things)]),
		Summary:   fmt.Sprintf("It took %d days & a night. Nobody was hurt; some were late.", 2+i%9),
		Published: at.Format(time.RFC3339),
		Day:       at.Format("2 January 2006"),
		Minutes:   2 + i*3%11,
		Comments:  i * i % 1300,
		author:    by,
	}
	if newsCharset(i/newsPerPage).charmap == charmap.Windows1251 {
		st.Title = fmt.Sprintf("%s %s № %d", openingsBG[i%len(openingsBG)], thingsBG[i%len(thingsBG)], i)
		st.Summary = fmt.Sprintf("Отне %d дни и една нощ – без пострадали.", 2+i%9)
	}
	st.Author, st.AuthorHref = authors[by].Name, authors[by].href()
	st.CommentsText = group(st.Comments, ",") + " comments"
	for k := range i % 4 {
		st.Tags = append(st.Tags, storyTags[(i+k*2)%len(storyTags)])
	}
	return st
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
	if len(st.Tags) > 0 { // a field without a value is left out
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
