/** Marks of texts: they know a text again, however it was cut, and no other one. */
import t from 'tap'
import { TextMark } from '../../src/formats/text-mark.ts'

function marked(...pieces: string[]): TextMark {
  const mark = new TextMark()
  for (const piece of pieces) mark.add(piece)
  return mark
}

t.test('a mark knows its text, however it came', async t => {
  const text = 'Ünïcode 語 and 🙂, and a \u0000 too. '.repeat(40)
  for (const length of [1, 2, 7, 100, text.length]) {
    const pieces = Array.from({ length: Math.ceil(text.length / length) }, (_, at) =>
      text.slice(at * length, (at + 1) * length),
    )
    const mark = marked(...pieces)
    t.equal(mark.length, text.length)
    t.ok(mark.equals(text))
    t.ok(mark.isBeginningOf(text))
    t.ok(mark.isBeginningOf(`${text}more`))
    t.notOk(mark.equals(`${text}more`))
    t.notOk(mark.isBeginningOf(text.slice(0, -1)))
  }
})

t.test('nothing is the beginning of every text', async t => {
  t.ok(marked().equals(''))
  t.ok(marked('', '').isBeginningOf('any'))
  t.notOk(marked().equals('any'))
})

t.test('other texts of the same length are others', async t => {
  const text = 'The same length of text, but for some letters'
  for (let at = 0; at < text.length; at++) {
    for (const other of ['x', '\u0000', '\u4e00', '\u8000']) {
      const changed = text.slice(0, at) + other + text.slice(at + 1)
      t.equal(marked(text).equals(changed), changed === text)
    }
  }
  t.notOk(marked('ab').equals('ba'))
  t.notOk(marked('aab').equals('aba'))
})

t.test('short texts do not share a mark', async t => {
  // The words of Thue and Morse defeat hashes that are sums of powers.
  let word = 'a'
  let opposite = 'b'
  for (let round = 0; round < 12; round++) {
    t.notOk(marked(word).equals(opposite), `${word.length} units`)
    const next = word + opposite
    opposite += word
    word = next
  }
  const letters = ['a', 'b', '\u0100', '\u8000', '\u0000']
  const words = letters.flatMap(one => letters.flatMap(two => letters.map(three => one + two + three)))
  for (const one of words) t.equal(words.filter(two => marked(one).equals(two)).length, 1)
})

t.test('a mark that has recognised its text goes on with it', async t => {
  const mark = marked('one ', 'and two')
  t.ok(mark.equals('one and two'))
  t.ok(mark.isBeginningOf('one and two and three'))
  mark.add(' and three')
  t.equal(mark.length, 21)
  t.ok(mark.equals('one and two and three'))
  t.notOk(mark.equals('one and two and THREE'))
  t.notOk(mark.isBeginningOf('one and two'))
  mark.add('.')
  t.ok(mark.isBeginningOf('one and two and three. More'))
  t.notOk(mark.isBeginningOf('One and two and three. More'))
})
