import t from 'tap'
import { requestJson } from '../../src/pipeline/request-json.ts'
import { bestCpuMs } from '../support/cpu-time.ts'

const LARGE = 1024 * 1024
const PIECE = 64 * 1024

const TEXTS: Readonly<Record<string, string>> = {
  base64: 'QUJD'.repeat(PIECE),
  'lines with quotes': 'He said "no" \\ and left.\n\u0001'.repeat(PIECE / 16),
  'one escape at the end': `${'x'.repeat(3 * PIECE)}"`,
  'characters of two units across every border': `x${'😀'.repeat(2 * PIECE)}`,
  'halves of characters': `${'y'.repeat(PIECE - 1)}\ud800${'z'.repeat(PIECE)}\udc00${'\ud800'.repeat(PIECE)}`,
  'wide characters': '漢字é'.repeat(PIECE),
  'exactly one piece': 'p'.repeat(PIECE),
}

for (const [name, text] of Object.entries(TEXTS)) {
  t.test(`a large request with ${name} is written as the engine writes it`, async t => {
    const body = {
      model: 'm',
      [`key of ${text}`.slice(0, 2 * PIECE)]: 1,
      input: [{ text }, 'short', null, { deep: [text, text.slice(0, PIECE - 1), 1.5, true] }],
      nothing: undefined,
      last: text,
    }
    t.ok(requestJson(body, LARGE) === JSON.stringify(body))
    t.ok(requestJson(body, 0) === JSON.stringify(body))
  })
}

t.test('members that a prototype has too are written as they are', async t => {
  const body = JSON.parse(`{"__proto__":{"text":"${'x'.repeat(PIECE)}"},"constructor":"y"}`)
  t.equal(requestJson(body, LARGE), JSON.stringify(body))
})

t.test('a large request of numbers costs what the engine takes to write them', async t => {
  const body = { list: Array.from({ length: 400_000 }, () => 1e-320) }
  const control = bestCpuMs(() => void JSON.stringify(body))
  const ours = bestCpuMs(() => void requestJson(body, LARGE))
  t.ok(ours < 20 + control * 2.5, `${ours} ms, of which the engine takes ${control} ms`)
})
