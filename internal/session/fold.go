package session

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// folded is a text in the form in which it is compared: compatibility forms
// such as full-width letters replaced, lower case, traditional characters that
// the rules or verbs use as simplified ones, without accents and invisible
// characters, and with Latin letters for their look-alikes. It remembers where
// everything was.
type folded struct {
	text string
	// at has, for each byte of text and for its end, the offset in the original.
	at []int
}

func fold(original string) folded {
	f := folded{at: make([]int, 0, len(original)+1)}
	text := make([]byte, 0, len(original))
	returned := false
	emit := func(r rune, at int) {
		// One line end, whichever way it is written.
		if returned && r == '\n' {
			returned = false
			return
		}
		returned = r == '\r'
		before := len(text)
		if latin, ok := lookAlikes[r]; ok {
			r = latin
		}
		text = utf8.AppendRune(text, plain(unicode.ToLower(r)))
		for range len(text) - before {
			f.at = append(f.at, at)
		}
	}
	for i, r := range original {
		switch {
		case r < utf8.RuneSelf:
			emit(r, i)
			continue
		case strings.ContainsRune(apostrophes, r):
			emit('\'', i)
			continue
		}
		for _, d := range norm.NFKD.String(string(r)) {
			if invisible(d) {
				continue
			}
			if simple, ok := simplified[d]; ok {
				d = simple
			}
			emit(d, i)
		}
	}
	for i := 1; i+1 < len(text); i++ {
		// An apostrophe, not a mark of code.
		if text[i] == '`' && isLatin(text[i-1]) && isLatin(text[i+1]) {
			text[i] = '\''
		}
	}
	f.at = append(f.at, len(original))
	f.text = string(text)
	f.closeUp()
	return f
}

// closeUp takes away the spaces around a single sign of a script that writes
// none: "别 重 启".
func (f *folded) closeUp() {
	var text []byte
	at := f.at[:0]
	kept, runs := 0, 0 // runs is how many signs stand before the place, at most 2
	for i := 0; i < len(f.text); {
		r, size := utf8.DecodeRuneInString(f.text[i:])
		if r != ' ' || runs == 0 {
			if runs = min(runs+1, 2); !unspaced(r) {
				runs = 0
			}
			i += size
			continue
		}
		end := i + len(f.text[i:]) - len(strings.TrimLeft(f.text[i:], " "))
		next, size := utf8.DecodeRuneInString(f.text[end:])
		after, _ := utf8.DecodeRuneInString(f.text[end+size:])
		if single := runs == 1 || !unspaced(after); single && unspaced(next) {
			text, at = append(text, f.text[kept:i]...), append(at, f.at[kept:i]...)
			kept = end
		}
		i, runs = end, 0
	}
	if kept > 0 {
		f.text, f.at = string(append(text, f.text[kept:]...)), append(at, f.at[kept:]...)
	}
}

// lookAlikes are letters of other scripts that look like Latin ones.
var lookAlikes = func() map[rune]rune {
	const pairs = "АAВBЕEКKМMНHОOРPСCТTХXУYІIЈJЅSԀDԚQԜWаaвbеeкkмmнhоoрpсcтtхxуyіiјjѕsһhԁdԛqԝwӏlүyґrгr" +
		"ΑAΒBΕEΖZΗHΙIΚKΜMΝNΟOΡPΤTΥYΧXαaβbεeηnιiκkνvοoρpτtυuχxγyωw" + "ıiɑaɡgɩiʀrꜱsʙbɴnʟlɪiʜhᴀaᴄcᴅdᴇeᴊjᴋkᴍmᴏoᴘpᴛtᴜuᴠvᴡwᴢz"
	latin := map[rune]rune{}
	list := []rune(pairs)
	for i := 0; i < len(list); i += 2 {
		latin[list[i]] = list[i+1]
	}
	return latin
}()

const apostrophes = "’‘‛ʼʹ′´＇"

// invisible reports whether r is nothing to the eye, or a mark on the character
// before it.
func invisible(r rune) bool {
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) || r == '\u115F' || r == '\u1160' || r == '\u3164' || r == '\uFFA0'
}

// plain gives white space and controls one form each.
func plain(r rune) rune {
	switch {
	case r == '\n', r == '\r', r == '\u2028', r == '\u2029', r == '\u0085', r == '\v', r == '\f':
		return '\n'
	case unicode.IsSpace(r), unicode.IsControl(r):
		return ' '
	}
	return r
}

func isLatin(b byte) bool { return b >= 'a' && b <= 'z' }

// simplified has the traditional characters of the rules and of common verbs,
// each before its simplified form.
var simplified = func() map[rune]rune {
	const pairs = "別别許许嚴严準准應应該该萬万經经對对絕绝會会問问說说訴诉讓让給给沒没無无須须還还過过後后時时從从為为誰谁麼么麽么嗎吗現现開开啟启啓启關关閉闭刪删執执發发動动擴扩縮缩滾滚調调優优遷迁備备導导權权業业務务" +
		"總总復复製制構构運运裡里這这個个們们來来將将與与並并當当單单號号處处終终離离線线斷断連连結结換换鎖锁變变實实體体項项環环僅仅隨随擬拟廢废銷销設设據据庫库鏡镜測测試试產产級级類类區区組组輕轻緊紧臉脸錢钱" +
		"險险躊踌擔担懼惧諒谅誤误記记顧顾際际緒绪訂订購购買买賣卖轉转賬账帳帐進进額额認认確确證证審审報报書书寫写顯显錯错樣样卻却幹干機机數数話话題题資资檔档傳传郵邮簡简訊讯簽签選选擇择鍵键盤盘網网絡络頁页點点" +
		"擊击狀状態态監监種种塊块壓压載载裝装層层達达遠远願愿預预議议論论讀读規规則则約约東东幾几條条節节週周曆历輪轮詢询維维護护請请"
	simple := map[rune]rune{}
	list := []rune(pairs)
	for i := 0; i < len(list); i += 2 {
		simple[list[i]] = list[i+1]
	}
	return simple
}()
