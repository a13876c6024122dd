/** Files of the workspace in requests, by their ids: what a provider gets of them, in every dialect. */
import t from 'tap'
import { writePdf } from '../support/pdf.ts'
import { type Fields, MODEL, startFileTools } from '../support/world.ts'

const PNG = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
)
const PDF = Buffer.from(writePdf({ pages: ['a page'] }))

async function start(t: Parameters<typeof startFileTools>[0]) {
  const world = await startFileTools(t)
  const { gateway, provider } = world
  const ask = async (path: string, body: Fields) => {
    provider.asked.length = 0
    provider.script('model', [{ text: 'Seen.' }])
    const reply = await fetch(gateway.url + path, {
      method: 'POST',
      headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: MODEL, ...body }),
    })
    const messages = (provider.asked[0]?.body['messages'] ?? []) as readonly Fields[]
    return { status: reply.status, text: await reply.text(), content: messages.at(-1)?.['content'] }
  }
  const respond = (...content: readonly Fields[]) => ask('/responses', { input: [{ role: 'user', content }] })
  return { ...world, ask, respond }
}

t.test('a text, a PDF and a picture are sent as what they are', async t => {
  const { respond, upload } = await start(t)
  const [text, pdf, png] = [
    await upload('a.txt', 'the words'),
    await upload('a.pdf', PDF),
    await upload('a.png', PNG),
  ]
  const file = (file_id: string, more: Fields = {}) => ({ type: 'input_file', file_id, ...more })
  const { status, content } = await respond(file(text), file(pdf), file(png), {
    type: 'input_image',
    file_id: png,
    detail: 'low',
  })
  t.equal(status, 200)
  t.match(content, [
    { type: 'text', text: 'File: a.txt\n\nthe words' },
    {
      type: 'file',
      file: { filename: 'a.pdf', file_data: `data:application/pdf;base64,${PDF.toString('base64')}` },
    },
    { type: 'image_url', image_url: { url: `data:image/png;base64,${PNG.toString('base64')}` } },
    {
      type: 'image_url',
      image_url: { url: `data:image/png;base64,${PNG.toString('base64')}`, detail: 'low' },
    },
  ])
  const named = await respond(file(text, { filename: 'called.md' }))
  t.match(named.content, /File: called\.md\n\nthe words/)
})

t.test('the same in the other dialects, and in the output of a function', async t => {
  const { ask, upload } = await start(t)
  const [text, png] = [await upload('a.txt', 'the words'), await upload('a.png', PNG)]
  const chat = await ask('/chat/completions', {
    messages: [{ role: 'user', content: [{ type: 'file', file: { file_id: text } }] }],
  })
  t.equal(chat.status, 200, chat.text)
  t.match(JSON.stringify(chat.content), 'the words')
  const messages = await ask('/messages', {
    max_tokens: 9,
    messages: [
      {
        role: 'user',
        content: [
          { type: 'document', source: { type: 'file', file_id: text } },
          { type: 'image', source: { type: 'file', file_id: png } },
        ],
      },
    ],
  })
  t.equal(messages.status, 200, messages.text)
  t.match(JSON.stringify(messages.content), /the words.*data:image\/png/)
  const call = { type: 'function_call', call_id: 'c', name: 'f', arguments: '{}' }
  const output = {
    type: 'function_call_output',
    call_id: 'c',
    output: [{ type: 'input_file', file_id: text }],
  }
  const answered = await ask('/responses', { input: [{ role: 'user', content: 'x' }, call, output] })
  t.equal(answered.status, 200, answered.text)
  t.match(JSON.stringify(answered.content), 'the words')
})

t.test('ids of nobody and of others, and files that no model takes, are refused', async t => {
  const { respond, upload, keyIn, provider, gateway } = await start(t)
  const theirs = await upload('theirs.txt', 'a canary', await keyIn('ws_other'))
  const binary = await upload('binary', Buffer.from([0, 1, 2, 3]))
  const text = await upload('a.txt', 'words')
  const nobody = 'gw_file_000000000000000000000000'
  for (const [part, problem] of [
    [{ type: 'input_file', file_id: theirs }, /no such file/],
    [{ type: 'input_image', file_id: theirs }, /no such file/],
    [{ type: 'input_file', file_id: nobody }, /no such file/],
    [{ type: 'input_file', file_id: binary }, /neither text/],
    [{ type: 'input_image', file_id: text }, /must be a PNG/],
  ] as const) {
    const { status, text } = await respond({ type: 'input_text', text: 'x' }, part)
    t.equal(status, 400, text)
    t.match(text, problem)
    t.match(text, /input\[0\]\.content\[1\]\.file_id: /)
    t.notMatch(text, 'canary')
    t.equal(provider.asked.length, 0)
  }
  const foreign = await respond({ type: 'input_file', file_id: 'file-of-a-provider' })
  t.not(foreign.status, 500)
  t.notMatch(foreign.text, 'no such file in this workspace', 'other ids are for providers')
  t.equal(gateway.lines.filter(({ level }) => level === 'error').length, 0)
})

t.test('the files of a request are bounded together', async t => {
  const { respond, upload } = await start(t)
  const large = await upload('large.txt', 'x'.repeat(8_000_000), undefined, 'batch')
  const part = { type: 'input_file', file_id: large }
  t.equal((await respond(part)).status, 200)
  const tooMuch = await respond(part, part, part)
  t.equal(tooMuch.status, 413)
  t.match(tooMuch.text, /at most 20971520 bytes/)
  const small = await Promise.all(
    Array.from({ length: 21 }, (_, at) => upload(`${at}`, 'x', undefined, 'batch')),
  )
  const parts = small.map(file_id => ({ type: 'input_file', file_id }))
  t.equal((await respond(...parts.slice(0, 20))).status, 200)
  t.equal((await respond(...parts)).status, 400)
})
