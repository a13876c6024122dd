import t from 'tap'
import { searchWords } from '../../../src/features/tasks/search-words.ts'

t.test('words are found whatever their case, accents and script', async t => {
  for (const [text, words] of [
    ['', []],
    [' \n-_!', []],
    ['The bicycle-shed, 12:30', ['the', 'bicycle', 'shed', '12', '30']],
    ['CAFÉ Übergröße ẞ ﬁ ２', ['cafe', 'ubergroße', 'ß', 'fi', '2']],
    ['東京都', ['東京', '京都']],
    ['日', ['日']],
    ['abc日本def', ['日本', 'abc', 'def']],
    ['Ёлка привет', ['елка', 'привет']],
    ['👋🏽', []],
    ['x'.repeat(1_000), ['x'.repeat(64)]],
    ["o'brien \0 \ud800", ['o', 'brien']],
  ] as const)
    t.same(searchWords(text), words, JSON.stringify(text.slice(0, 20)))
})
