/** Thoughts before calls come back to a provider that wants them, from clients that keep no more than the call. */
import { createServer } from 'node:http'
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { listening } from '../support/listening.ts'
import { addKey } from '../support/management.ts'

interface Message {
  readonly role: string
  readonly tool_calls?: readonly unknown[]
  readonly reasoning_content?: unknown
}
const asked: { readonly slug: string; readonly messages: readonly Message[] }[] = []
let calls = 0

/** Refuses turns with calls that lack the field, as DeepSeek does. */
const server = createServer(async (request, response) => {
  let text = ''
  for await (const chunk of request.setEncoding('utf8')) text += String(chunk)
  const { messages } = JSON.parse(text) as { messages: readonly Message[] }
  asked.push({ slug: (request.url ?? '').split('/')[1] ?? '', messages })
  const lacks = messages.some(
    each => each.tool_calls !== undefined && typeof each.reasoning_content !== 'string',
  )
  const call = { id: `call_${++calls}`, type: 'function', function: { name: 'look', arguments: '{}' } }
  const message = {
    role: 'assistant',
    content: '',
    reasoning_content: `Thought ${calls}.`,
    tool_calls: [call],
  }
  const reply = {
    id: 'c',
    choices: [{ index: 0, finish_reason: 'tool_calls', message }],
    usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
  }
  response
    .writeHead(lacks ? 400 : 200, { 'content-type': 'application/json' })
    .end(JSON.stringify(lacks ? { error: { message: 'reasoning_content must be passed back' } } : reply))
})
const { url: at } = await listening(server, t)
const row = (slug: string) =>
  ({
    slug,
    name: slug,
    format: 'openai-chat',
    baseUrl: `${at}/${slug}`,
    apiKey: `key-${slug}-0123456789`,
    quirks: ['replay-reasoning'],
  }) as const
const gateway = await startGateway({
  providers: [row('deep'), row('other')],
  models: ['deep', 'other'].map(slug => ({
    id: `${slug}/m`,
    endpoints: [{ provider: slug, upstreamModel: 'm', pricing: {} }],
  })),
})
t.teardown(() => gateway.close())

const tools = [{ type: 'function', function: { name: 'look', parameters: { type: 'object' } } }]
const user = { role: 'user', content: 'go' }

async function ask(messages: readonly object[], { model = 'deep/m', key = gateway.apiKey, ...more } = {}) {
  const reply = await fetch(`${gateway.url}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model, messages, tools, ...more }),
  })
  const text = await reply.text()
  if (reply.status !== 200) t.fail(text)
  const { choices } = JSON.parse(text) as { choices: [{ message: { tool_calls: [{ id: string }] } }] }
  const sent = asked.at(-1)?.messages.filter(each => each.tool_calls !== undefined) ?? []
  return { call: choices[0].message.tool_calls[0], thoughts: sent.map(each => each.reasoning_content) }
}
const turn = (call: { readonly id: string }) => [
  { role: 'assistant', content: null, tool_calls: [call] },
  { role: 'tool', tool_call_id: call.id, content: 'x' },
]

t.test('the thought of each turn comes back, whatever the client kept', async t => {
  const one = await ask([user])
  const two = await ask([user, ...turn(one.call)])
  t.same(two.thoughts, ['Thought 1.'])
  const three = await ask([user, ...turn(one.call), ...turn(two.call)])
  t.same(three.thoughts, ['Thought 1.', 'Thought 2.'])
  t.same((await ask([user, ...turn({ ...one.call, id: 'unknown' })])).thoughts, [''], 'a lost one is empty')
})

t.test('no other provider and no other workspace gets it', async t => {
  const { call } = await ask([user])
  t.same((await ask([user, ...turn(call)], { model: 'other/m' })).thoughts, [''])
  const key = await addKey(gateway.storageUrl, { workspaceId: 'ws_other' })
  t.same((await ask([user, ...turn(call)], { key })).thoughts, [''])
})
