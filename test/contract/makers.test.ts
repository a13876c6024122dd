/** Sealed thoughts go back to the provider and the credential that made them, and to nobody else. */
import { createServer } from 'node:http'
import t, { type Test } from 'tap'
import { startGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'

type Fields = Record<string, unknown>
interface Asked {
  readonly account: string
  readonly body: Fields
}
const asked: Asked[] = []
/** Accounts that are away. */
const away = new Set<string>()
const SEAL = 'gAAAAABsealedthoughtsealedthought'
const SIGNATURE = 'EuYBCkQYBSJAsignedthought'

/** Each account of the provider reads only what itself has sealed, and says so in the seal. */
const server = createServer(async (request, response) => {
  let text = ''
  for await (const chunk of request.setEncoding('utf8')) text += String(chunk)
  const [, account = ''] = (request.url ?? '').split('/')
  asked.push({ account, body: JSON.parse(text) as Fields })
  const foreign = /(?:gAAAAAB|EuYBCk)[a-z]+-of-(\w+)/i.exec(text)
  const status = away.has(account) ? 503 : foreign !== null && foreign[1] !== account ? 400 : 200
  const refusal = {
    error: { type: 'invalid_request_error', message: 'The encrypted content could not be verified.' },
  }
  const reply = (request.url ?? '').endsWith('/messages') ? message(account) : answerOf(account)
  response
    .writeHead(status, { 'content-type': 'application/json' })
    .end(JSON.stringify(status === 200 ? reply : refusal))
})

function message(account: string) {
  const content = [
    { type: 'thinking', thinking: 'Tea, I think.', signature: `${SIGNATURE}-of-${account}` },
    { type: 'text', text: 'Tea' },
  ]
  const usage = { input_tokens: 5, output_tokens: 2 }
  return {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model: 'm',
    content,
    stop_reason: 'end_turn',
    usage,
  }
}

function answerOf(account: string) {
  const output = [
    { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: `${SEAL}-of-${account}` },
    {
      type: 'message',
      id: 'msg_1',
      role: 'assistant',
      status: 'completed',
      content: [{ type: 'output_text', text: 'Tea', annotations: [] }],
    },
  ]
  const usage = { input_tokens: 5, output_tokens: 2, total_tokens: 7 }
  return { id: 'resp_1', object: 'response', status: 'completed', model: 'm', output, usage }
}
const { url: at } = await listening(server, t)
const row = (slug: string, format: 'openai-responses' | 'anthropic-messages') =>
  ({ slug, name: slug, format, baseUrl: `${at}/${slug}`, apiKey: `sk-${slug}-0123456789abcdef` }) as const
const gateway = await startGateway({
  providers: [
    row('first', 'openai-responses'),
    row('second', 'openai-responses'),
    row('third', 'anthropic-messages'),
    row('fourth', 'anthropic-messages'),
  ],
  models: [
    { id: 'acme/sealing', endpoints: [{ provider: 'first' }, { provider: 'second' }] },
    { id: 'acme/signing', endpoints: [{ provider: 'third' }, { provider: 'fourth' }] },
  ],
})
t.teardown(() => gateway.close())
t.beforeEach(() => {
  asked.length = 0
  away.clear()
})

async function respond(t: Test, body: Fields): Promise<Fields & { output: Fields[] }> {
  const reply = await gateway.respond({ include: ['reasoning.encrypted_content'], ...body })
  const answer = (await reply.json()) as Fields & { output: Fields[] }
  t.equal(reply.status, 200, JSON.stringify(answer).slice(0, 300))
  return answer
}

const ASK = { type: 'message', role: 'user', content: 'Tea or coffee?' }
const AGAIN = { type: 'message', role: 'user', content: 'Sure?' }
const accounts = () => asked.map(({ account }) => account)
const thoughtIn = (body: Fields = {}) =>
  (body['input'] as Fields[]).filter(item => item['type'] === 'reasoning')

t.test('encrypted reasoning goes back to its account, which is asked first', async t => {
  away.add('first')
  const { output } = await respond(t, { model: 'acme/sealing', input: [ASK] })
  t.same(accounts(), ['first', 'second'])
  away.clear()
  asked.length = 0
  for (let turn = 0; turn < 20; turn++)
    await respond(t, { model: 'acme/sealing', input: [ASK, ...output, AGAIN], session_id: `s-${turn}` })
  t.same(new Set(accounts()), new Set(['second']), 'not the first of the row')
  t.match(thoughtIn(asked[0]?.body), [{ encrypted_content: `${SEAL}-of-second` }], 'as its maker wrote it')
})

t.test('where its account is away the other one gets the conversation without it', async t => {
  const { output } = await respond(t, { model: 'acme/sealing', input: [ASK], provider: { only: ['second'] } })
  away.add('second')
  asked.length = 0
  await respond(t, { model: 'acme/sealing', input: [ASK, ...output, AGAIN] })
  t.same(accounts(), ['second', 'first'])
  t.same(thoughtIn(asked[1]?.body), [])
  t.notMatch(JSON.stringify(asked[1]?.body), /gAAAAAB|gwm1/)
})

t.test('an order of the caller is kept', async t => {
  const { output } = await respond(t, { model: 'acme/sealing', input: [ASK], provider: { only: ['second'] } })
  asked.length = 0
  await respond(t, {
    model: 'acme/sealing',
    input: [ASK, ...output, AGAIN],
    provider: { order: ['first', 'second'] },
  })
  t.same(accounts(), ['first'])
})

t.test('a client that keeps only the seal of a thought brings back all of it', async t => {
  const { output } = await respond(t, { model: 'acme/signing', input: [ASK] })
  const [thought] = output
  const { type, id, summary, encrypted_content } = thought as Fields
  t.match(encrypted_content, /^gwt1\./)
  await respond(t, {
    model: 'acme/signing',
    input: [ASK, { type, id, summary, encrypted_content }, ...output.slice(1), AGAIN],
  })
  t.match(asked.at(-1), {
    account: 'third',
    body: {
      messages: [
        { role: 'user' },
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 'Tea, I think.', signature: `${SIGNATURE}-of-third` },
            { type: 'text' },
          ],
        },
        { role: 'user' },
      ],
    },
  })
  away.add('third')
  await respond(t, { model: 'acme/signing', input: [ASK, ...output, AGAIN] })
  t.notMatch(JSON.stringify(asked.at(-1)?.body), /thinking|gw[mt]1/)
})

t.test('signatures in the other dialects go back to their maker alone', async t => {
  const ask = async (path: string, body: Fields) => {
    const reply = await fetch(`${gateway.url}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'acme/signing', max_tokens: 3000, ...body }),
    })
    t.equal(reply.status, 200)
    return (await reply.json()) as Fields
  }
  const user = (content: string) => ({ role: 'user', content })
  const { content } = await ask('/messages', { messages: [user('Tea?')] })
  const chat = await ask('/chat/completions', { messages: [user('Tea?')], reasoning: { enabled: true } })
  const [choice] = chat['choices'] as { message: Fields }[]
  const said: readonly [string, Fields][] = [
    ['/messages', { role: 'assistant', content }],
    ['/chat/completions', choice?.message ?? {}],
  ]
  for (const [path, message] of said) {
    away.clear()
    await ask(path, { messages: [user('Tea?'), message, user('Sure?')] })
    t.match(JSON.stringify(asked.at(-1)?.body), `"signature":"${SIGNATURE}-of-third"`, path)
    away.add('third')
    await ask(path, { messages: [user('Tea?'), message, user('Sure?')] })
    t.equal(asked.at(-1)?.account, 'fourth')
    t.notMatch(JSON.stringify(asked.at(-1)?.body), /"signature"|gwm1/, path)
  }
})

t.test('signatures that no provider can have made are left out, those without a mark too', async t => {
  const thought = (signature: string) => [
    { type: 'thinking', thinking: 'Tea, I think.', signature },
    { type: 'text', text: 'Tea' },
  ]
  const REAL = `EqQBCgIYAhIM${'aB3+/'.repeat(20)}==`
  const ask = async (signature: string) => {
    const reply = await fetch(`${gateway.url}/messages`, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        model: 'acme/signing',
        max_tokens: 3000,
        messages: [
          { role: 'user', content: 'Tea?' },
          { role: 'assistant', content: thought(signature) },
          { role: 'user', content: 'Sure?' },
        ],
      }),
    })
    t.equal(reply.status, 200)
    return JSON.stringify(asked.at(-1)?.body)
  }
  t.match(await ask(REAL), `"signature":"${REAL}"`, 'made elsewhere, and may be real')
  for (const signature of [
    '',
    'x',
    'skip_thought_signature_validator',
    `gAAAAAB${'a'.repeat(99)}`,
    'é'.repeat(99),
  ])
    t.notMatch(await ask(signature), /thinking|"signature"/, signature)
})

t.test('a seal that a client has changed is left out or harmless', async t => {
  for (const encrypted_content of [
    'gwm1.',
    'gwm1.x',
    'gwt1.AAAAAAAAAA.%%%',
    'gwt1.AAAAAAAAAA.e30',
    'gwm1..',
    'gwt1',
  ]) {
    const thought = { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content }
    await respond(t, { model: 'acme/sealing', input: [ASK, thought, AGAIN] })
    if (encrypted_content !== 'gwt1') t.notMatch(JSON.stringify(asked.at(-1)?.body), /gw[mt]1/)
  }
})
