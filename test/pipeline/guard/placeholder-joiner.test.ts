/** Placeholders that a provider cut: every delta has whole ones, and little is held back. */
import fc from 'fast-check'
import t from 'tap'
import { Masks, placeholdersIn } from '../../../src/exchange/masks.ts'
import type { Content } from '../../../src/pipeline/answer/answer.ts'
import { PlaceholderJoiner } from '../../../src/pipeline/guard/placeholder-joiner.ts'
import { search } from '../../support/property.ts'

type Said = Extract<Content, { kind: 'text' }>

function joining() {
  const masks = new Masks()
  for (let n = 1; n <= 12; n++) masks.give('EMAIL', `value ${n}`)
  const received: Content[] = []
  let ends = 0
  const target = {
    sink: null,
    committed: false,
    receive: (delta: Content) => void received.push(delta),
    end: (done: () => void) => done(),
    close: () => undefined,
  }
  const joiner = new PlaceholderJoiner(masks, target)
  return {
    received,
    joiner,
    end: () => joiner.end(() => void ends++),
    get ends() {
      return ends
    },
    said: () => received.map(delta => ('text' in delta ? delta.text : '')).join(''),
  }
}

const text = (text: string, more: Partial<Said> = {}): Said => ({
  kind: 'text',
  item: 0,
  part: 0,
  text,
  logprobs: null,
  ...more,
})

t.test('however a text is cut, each placeholder arrives in one piece', async () => {
  const piece = fc.constantFrom(
    '[EMAIL_1]',
    '[EMAIL_12]',
    '[',
    '[EMAIL',
    '[EMAIL_',
    ']',
    ' a ',
    '[[',
    '[EMAIL_99]',
  )
  fc.assert(
    fc.property(
      fc.array(piece, { maxLength: 20 }),
      fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1 }),
      (list, sizes) => {
        const whole = list.join('')
        const { joiner, received, end, said } = joining()
        for (let at = 0, n = 0; at < whole.length; n++) {
          const size = sizes[n % sizes.length] ?? 1
          joiner.receive(text(whole.slice(at, at + size)))
          at += size
        }
        end()
        const placed = received.flatMap(delta => ('text' in delta ? placeholdersIn(delta.text) : []))
        return said() === whole && placed.length === placeholdersIn(whole).length
      },
    ),
    search(500),
  )
})

t.test('no more than the longest placeholder is held back, whatever the reply contains', async t => {
  for (const hostile of ['[', '[EMAIL_1', '[A', '[_']) {
    const { joiner, received, end, said } = joining()
    let sent = 0
    for (let n = 0; n < 20_000; n++) {
      joiner.receive(text(hostile))
      sent += hostile.length
      const last = received.at(-1)
      if (last !== undefined && 'text' in last && last.text.length > 64) t.fail('one delta grew')
    }
    t.ok(sent - said().length < '[EMAIL_12]'.length)
    end()
    t.equal(said().length, sent)
  }
})

t.test('what is held leaves before whatever follows it in its item, and at the end', async t => {
  const { joiner, received, end } = joining()
  joiner.receive(text('see [EMAIL'))
  joiner.receive({ kind: 'reasoning', item: 1, form: 'text', part: 0, text: '[EM' })
  joiner.receive(text('_1] [', { part: 1 }))
  joiner.receive(text('x [', { part: 1, cut: true }))
  joiner.receive({ kind: 'close', item: 0, fields: null })
  joiner.receive({ kind: 'reasoning', item: 1, form: 'text', part: 0, text: 'AIL_2] [' })
  end()
  t.same(
    received.map(delta => ('text' in delta ? `${delta.item}:${delta.text}` : `${delta.item}:${delta.kind}`)),
    ['0:see ', '0:[EMAIL', '0:_1] ', '0:[', '0:x ', '0:[', '0:close', '1:[EMAIL_2] ', '1:['],
  )
})

t.test('log probabilities stay with a text without placeholders', async t => {
  const logprob = (token: string) => ({ token, logprob: -1, bytes: [], top_logprobs: [] })
  const { joiner, received, end } = joining()
  joiner.receive(text('a [', { logprobs: [logprob('a'), logprob(' [')] }))
  joiner.receive(text('link]', { logprobs: [logprob('link]')] }))
  joiner.receive(text(' [EMAIL', { logprobs: [logprob(' [EMAIL')] }))
  joiner.receive(text('_1]', { logprobs: [logprob('_1]')] }))
  end()
  t.match(received, [
    { text: 'a [link]', logprobs: [{ token: 'a' }, { token: ' [' }, { token: 'link]' }] },
    { text: ' [EMAIL_1]', logprobs: null },
  ])
})
