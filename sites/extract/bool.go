package extract

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
)

func truth(fd found) (any, error) {
	if b, ok := fd.json.(bool); ok {
		return b, nil
	}
	t := strings.TrimRight(strings.ToLower(Fold(fd.text)), ".!")
	t = strings.TrimPrefix(strings.TrimPrefix(t, "https://"), "http://")
	t = strings.TrimPrefix(t, "schema.org/")
	if t == "" {
		return nil, nil
	}
	if v, ok := yesOrNo(t); ok {
		return v, nil
	}
	// "in stock (12)", "in stock, ships today", "only 12 in stock".
	if m := stockBefore.FindStringSubmatch(t); m != nil {
		if v, ok := yesOrNo(strings.TrimSpace(m[1])); ok && len([]rune(m[1])) > 3 {
			return v && (m[2] == "" || digits(m[2]) > 0), nil
		}
	}
	if m := stockBehind.FindStringSubmatch(t); m != nil {
		if v, ok := yesOrNo(strings.TrimSpace(m[2])); ok && len([]rune(m[2])) > 3 {
			return v && digits(m[1]) > 0, nil
		}
	}
	return nil, fmt.Errorf("%q is neither yes nor no; use regex to say what yes is", clip(t))
}

// The text around words such as "in stock": "In stock (12)", "12 in stock".
var (
	stockBefore = regexp.MustCompile(`^([^\d,;:()–|-]+)(?:[,;–|]|\s-\s|[:(]\s*(\d{1,6})\b|\()`)
	stockBehind = regexp.MustCompile(`^(?:\pL+\s+)?(\d{1,6})\s+(?:left\s+)?(.+)$`)
)

func yesOrNo(t string) (v, ok bool) {
	v, ok = truths()[t]
	return v, ok
}

// yes and no are words for them, and for available and unavailable.
const (
	yes = `true,yes,y,1,on,ja,oui,si,sí,sì,sim,tak,ano,áno,igen,evet,da,да,так,есть,є,ναι,はい,是,有,네,예,✓,✔,checked,available,in stock,instock,limitedavailability,onlineonly,instoreonly,low stock,
		auf lager,verfügbar,sofort verfügbar,lieferbar,sofort lieferbar,vorrätig,en stock,disponible,disponibile,disponível,em estoque,em stock,op voorraad,leverbaar,dostępny,dostępne,w magazynie,skladem,na sklade,raktáron,stokta,i lager,på lager,varastossa,în stoc,в наличност,в наличии,в наявності,налично,наличен,на склад,διαθέσιμο,在庫あり,有货,有貨,재고 있음`
	no = `false,no,n,0,off,nein,nee,nej,nei,non,não,nie,ne,nem,hayır,nu,не,нет,ні,няма,όχι,いいえ,否,无,無,아니요,✗,✘,×,unavailable,not available,not in stock,out of stock,outofstock,sold out,soldout,discontinued,
		nicht auf lager,nicht verfügbar,nicht lieferbar,ausverkauft,vergriffen,épuisé,en rupture de stock,rupture de stock,indisponible,agotado,sin stock,no disponible,esaurito,non disponibile,esgotado,indisponível,uitverkocht,niet op voorraad,niedostępny,niedostępne,wyprzedane,vyprodáno,není skladem,vypredané,elfogyott,nincs raktáron,tükendi,stokta yok,slutsåld,slut i lager,udsolgt,ikke på lager,utsolgt,loppu,loppuunmyyty,epuizat,stoc epuizat,изчерпан,изчерпано,изчерпана,няма в наличност,не е наличен,нет в наличии,немає в наявності,εξαντλημένο,在庫なし,売り切れ,无货,缺货,無貨,품절`
)

var truths = sync.OnceValue(func() map[string]bool {
	set := map[string]bool{}
	for w := range strings.SplitSeq(yes, ",") {
		set[strings.TrimSpace(w)] = true
	}
	for w := range strings.SplitSeq(no, ",") {
		set[strings.TrimSpace(w)] = false
	}
	return set
})
