/** Middle-out: what is left of a conversation that does not fit. */
import fc from 'fast-check'
import t from 'tap'
import { CUT_MARK, compressContext } from '../../../src/features/tasks/compress-context.ts'
import type { InputItem } from '../../../src/protocol/items.ts'
import { search } from '../../support/property.ts'

const message = (role: 'user' | 'system' | 'assistant', content: string): InputItem => ({
  type: 'message',
  role,
  content,
})
const call = (call_id: string): InputItem => ({
  type: 'function_call',
  call_id,
  name: 'f',
  arguments: '{"x":1}',
})
const result = (call_id: string, output = 'done'): InputItem => ({
  type: 'function_call_output',
  call_id,
  output,
})
const reasoning = (id: string): InputItem => ({ type: 'reasoning', id, summary: [] })

/** One token for each character of the JSON. */
const tokensOf = (item: InputItem) => JSON.stringify(item).length
const sum = (items: readonly InputItem[]) => items.reduce((all, item) => all + tokensOf(item), 0)
const compress = (items: readonly InputItem[], tokensMax: number) =>
  compressContext({ items, tokensMax, tokensOf })

t.test('what fits is the same list', async t => {
  const items = [message('user', 'hello')]
  const answer = compress(items, 1_000)
  t.equal(answer.items, items)
  t.match(answer, { fits: true, changed: false })
})

t.test('the middle goes first, from the centre outward, and the order stays', async t => {
  const items = ['1', '2', '3', '4', '5', '6', '7'].map(text => message('user', text.repeat(50)))
  const one = tokensOf(items[0] as InputItem)
  const kept = (count: number) => compress(items, one * count).items.map(item => items.indexOf(item) + 1)
  t.same(kept(6), [1, 2, 3, 5, 6, 7])
  t.same(kept(5), [1, 2, 5, 6, 7])
  t.same(kept(4), [1, 2, 6, 7])
  t.same(kept(2), [1, 7])
  t.same(kept(1), [7], 'the question stays')
})

t.test('system messages and the last question stay wherever they stand', async t => {
  const items = [
    message('user', 'a'.repeat(100)),
    message('assistant', 'b'.repeat(100)),
    message('system', 'rules'),
    message('user', 'the question'),
    message('assistant', 'c'.repeat(100)),
    message('assistant', 'd'.repeat(100)),
  ]
  const { items: kept, fits } = compress(items, 400)
  t.ok(fits)
  t.ok(kept.includes(items[2] as InputItem) && kept.includes(items[3] as InputItem))
  t.equal(kept.at(-1), items.at(-1))
})

t.test('a call goes with its result, and with the reasoning before it', async t => {
  const items = [
    message('user', 'do it'),
    reasoning('r1'),
    call('c1'),
    call('c2'),
    result('c1', 'x'.repeat(300)),
    result('c2'),
    message('assistant', 'so far'),
    message('user', 'go on'),
  ]
  const without = (tokens: number) =>
    compress(items, sum(items) - tokens).items.map(item => items.indexOf(item))
  t.same(without(1), [0, 1, 2, 4, 6, 7], 'the second call stands nearer to the centre')
  t.same(without(200), [0, 6, 7])
})

t.test('the call that is to be answered now stays with its result', async t => {
  const items = [
    message('user', 'task'),
    ...[1, 2, 3, 4].flatMap(n => [call(`c${n}`), result(`c${n}`, 'x'.repeat(100))]),
  ]
  const { items: kept, fits } = compress(items, 450)
  t.ok(fits)
  t.same(kept, [items[0], items[7], items[8]])
})

t.test('when leaving out is not enough, the longest text loses its middle', async t => {
  const text = `START${'x'.repeat(5_000)}END`
  const items = [message('system', 'rules'), message('user', text)]
  const { items: kept, fits } = compress(items, 1_000)
  t.ok(fits)
  const cut = kept[1] as { content: string }
  t.match(cut.content, /^START/)
  t.match(cut.content, /END$/)
  t.ok(cut.content.includes(CUT_MARK))
  t.ok(sum(kept) > 990 && sum(kept) <= 1_000, 'and no more than it has to')
  t.equal((items[1] as { content: string }).content, text, 'the items that came are as they were')
})

t.test('texts in parts and in results are cut too, arguments of calls never', async t => {
  const parts: InputItem = {
    type: 'message',
    role: 'user',
    content: [
      { type: 'input_text', text: 'short' },
      { type: 'input_text', text: 'y'.repeat(4_000) },
    ],
  }
  t.match(compress([parts], 1_000), { fits: true })
  t.match(compress([message('user', 'q'), call('c'), result('c', 'z'.repeat(4_000))], 1_000), { fits: true })
  const long: InputItem = {
    type: 'function_call',
    call_id: 'c',
    name: 'f',
    arguments: `{"x":"${'y'.repeat(4_000)}"}`,
  }
  const items = [message('user', 'q'), long, result('c')]
  t.same(compress(items, 1_000), { items, fits: false, changed: false })
})

t.test('what cannot fit is told, and comes back as it was', async t => {
  const items = [message('system', 's'.repeat(2_000)), message('user', 'q')]
  const answer = compress(items, 500)
  t.equal(answer.items, items)
  t.match(answer, { fits: false, changed: false })
})

t.test('a bound on the number of items keeps both ends', async t => {
  const items = Array.from({ length: 101 }, (_, n) => message('user', String(n)))
  const { items: kept, fits } = compressContext({ items, tokensMax: 1e9, tokensOf, itemsMax: 40 })
  t.ok(fits)
  t.same(kept, [...items.slice(0, 20), ...items.slice(81)])
})

/** A conversation with calls that may be answered later, in any order. */
const conversation = fc
  .array(
    fc.oneof(
      fc.record({ kind: fc.constantFrom('user', 'assistant', 'system'), length: fc.nat(800) }),
      fc.record({ kind: fc.constantFrom('call', 'calls', 'reasoned'), length: fc.nat(800) }),
    ),
    { minLength: 1, maxLength: 30 },
  )
  .map(steps =>
    steps.flatMap(({ kind, length }, n): InputItem[] => {
      const text = '𝄞x'.repeat(length / 3)
      if (kind === 'user' || kind === 'assistant' || kind === 'system') return [message(kind, text)]
      const pair = [call(`c${n}`), result(`c${n}`, text)]
      if (kind === 'reasoned') return [reasoning(`r${n}`), ...pair]
      return kind === 'call' ? pair : [call(`c${n}`), call(`d${n}`), result(`d${n}`), result(`c${n}`, text)]
    }),
  )

const callIds = (items: readonly InputItem[], type: string) =>
  items.flatMap(item => (item.type === type && 'call_id' in item ? [item.call_id] : [])).toSorted()

t.test(
  'of any conversation: it fits or says so, pairs stay whole, the order and the ends are kept',
  async t => {
    let changed = 0
    fc.assert(
      fc.property(conversation, fc.integer({ min: 50, max: 12_000 }), (items, tokensMax) => {
        const answer = compress(items, tokensMax)
        if (JSON.stringify(compress(items, tokensMax)) !== JSON.stringify(answer))
          throw new Error('another result')
        if (!answer.fits) {
          if (answer.items !== items) throw new Error('changed although it does not fit')
          return
        }
        if (answer.changed) changed++
        if (sum(answer.items) > tokensMax) throw new Error('it does not fit')
        const calls = callIds(answer.items, 'function_call')
        const results = callIds(answer.items, 'function_call_output')
        if (JSON.stringify(calls) !== JSON.stringify(results)) throw new Error('a pair was broken')
        // Cut items are new objects; they are told by what stays of them.
        const known = (item: InputItem) =>
          items.findIndex(
            each =>
              each === item ||
              ('call_id' in each &&
                'call_id' in item &&
                each.type === item.type &&
                each.call_id === item.call_id),
          )
        const places = answer.items.map(known).filter(place => place >= 0)
        if (places.some((place, at) => at > 0 && place <= (places[at - 1] ?? -1)))
          throw new Error('another order')
        const last = items.at(-1)
        if (last !== undefined && answer.items.at(-1)?.type !== last.type) throw new Error('the end was lost')
        for (const item of items) {
          const isSystem = 'role' in item && item.role === 'system'
          if (isSystem && !answer.items.includes(item)) throw new Error('a system message was lost')
        }
        for (const item of answer.items)
          if (!JSON.stringify(item).isWellFormed() || /\\ud[89a-f]/i.test(JSON.stringify(item)))
            throw new Error('half a character')
      }),
      search(500),
    )
    t.ok(changed > 50)
  },
)
