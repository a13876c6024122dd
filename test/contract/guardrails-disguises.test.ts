/** What is written in other characters, split, or wrapped is found, in requests and replies of every format. */
import t from 'tap'
import { FORMATS, pieces, speaking } from '../support/provider.ts'
import { deltasIn, saidIn, startGuarded } from '../support/world.ts'

const { parrot, guard, ask } = await startGuarded(t)
const builtins = (action: 'redact' | 'block') =>
  (['email', 'ssn', 'credit-card'] as const).map(
    slug => ({ slug, action, scanScope: 'all_messages' }) as const,
  )
const CANARY = { pattern: 'CANARY-\\d{6}', action: 'redact', label: 'canary' } as const
const RULES = { contentFilterBuiltins: builtins('redact'), contentFilters: [CANARY] }
const OUTPUT = { output: { ...RULES, windowBytes: 256, overlapBytes: 64 } }

/** By what they are: as written, and as they leave. */
const DISGUISES: Readonly<Record<string, readonly [written: string, redacted: string]>> = {
  'a zero-width space in an address': ['to ann@exa\u200bmple.com now', 'to [EMAIL] now'],
  'a soft hyphen in a pattern of the user': ['my CAN\u00adARY-123456.', 'my [REDACTED].'],
  'an en dash between digits': ['it is 536–22–1234, yes', 'it is [SSN], yes'],
  'a hyphen that does not break': ['it is 536\u201122\u20111234, yes', 'it is [SSN], yes'],
  'full-width letters and digits': ['my ＣＡＮＡＲＹ－１２３４５６ 。', 'my [REDACTED] 。'],
  'Arabic digits': ['it is ٥٣٦-٢٢-١٢٣٤, yes', 'it is [SSN], yes'],
  'narrow blanks in a card': ['4111\u20091111\u20091111\u20091111 is it', '[CREDIT_CARD] is it'],
}

for (const format of FORMATS) {
  const model = `parrot/${format}`

  t.test(`requests to ${format}`, async t => {
    await guard(RULES)
    const sent = async (body: object): Promise<string> => {
      await ask({ model, ...body })
      return parrot.bodies.at(-1) ?? ''
    }
    for (const [name, [written, redacted]] of Object.entries(DISGUISES)) {
      const body = await sent({ input: written })
      t.ok(body.includes(JSON.stringify(redacted).slice(1, -1)), `${name}: ${body}`)
    }
    const text = (part: string) => ({ type: 'input_text', text: part })
    const user = (...parts: string[]) => ({ role: 'user', content: parts.map(text) })
    for (const [name, body] of Object.entries({
      'two parts': { input: [user('Write to ann@exa', 'mple.com please')] },
      'many parts': { input: [user(...'Write to ann@example.com please'.split(''))] },
      'two messages': { input: [user('Write to ann@exa'), user('mple.com please')] },
      'instructions and input': { input: 'mple.com please', instructions: 'Write to ann@exa' },
    })) {
      const left = await sent(body)
      t.match(left, '[EMAIL]', name)
      t.notMatch(left, /@|mple/, name)
    }
    const kept = await sent({ input: [user('Write to ann@example.com', ' or ben@example.com')] })
    t.equal(kept.match(/\[EMAIL\]/g)?.length, 2, 'what is in one part is found once')
  })

  for (const stream of [false, true]) {
    t.test(`replies of ${format}, ${stream ? 'streamed' : 'whole'}`, async t => {
      await guard(OUTPUT)
      const said = async (parts: ReturnType<typeof speaking>): Promise<string> => {
        parrot.parts = parts
        const { document, events } = await ask({ model, input: 'Hi', stream })
        if (stream)
          t.equal(
            deltasIn(events),
            saidIn({
              output: (document['output'] as { type: string }[]).filter(({ type }) => type === 'message'),
            }).replaceAll('\n', ''),
          )
        return saidIn(document)
      }
      for (const [name, [written, redacted]] of Object.entries(DISGUISES)) {
        t.equal(await said(speaking(...written)), redacted, name)
      }
      const written = pieces('{"to":"\\u0043ANA', 'RY-1234', '56"}')
      const call = { kind: 'call', name: 'send', custom: false, pieces: written } as const
      t.equal(await said([call]), '{"to":"[REDACTED]"}', 'escapes in arguments')
    })
  }
}
