/** The OCR provider over a real client and a real socket; what it answers is in test/contract. */
import tap, { type Test } from 'tap'
import { type Provider, TRANSPORTS, type TransportName } from '../../../src/protocol/provider.ts'
import { createOcr } from '../../../src/providers/upstream/ocr.ts'
import { type Answering, reply } from '../../support/fault-server.ts'
import { scriptedEndpoint } from '../../support/scripted-attempt.ts'
import { serve, setUp as setUpBy } from './calls.ts'

const TIMEOUT_MS = 30_000
const DOCUMENT = 'data:application/pdf;base64,JVBERi0x'

async function start(
  by: TransportName,
  t: Test,
  answer: (answering: Answering) => void,
  more: Partial<Provider> = {},
) {
  const { clock, client } = setUpBy(t, {}, by)
  const server = await serve(t, answer)
  const { provider } = scriptedEndpoint('openai-chat')
  const baseUrl = server.url('/v1').href
  const ocr = createOcr({
    client,
    provider: { ...provider, baseUrl, auth: 'bearer', apiKey: 'key', ...more },
    model: 'ocr-1',
    timeoutMs: TIMEOUT_MS,
  })
  return { clock, ocr, server }
}

const live = () => new AbortController().signal

for (const by of TRANSPORTS) {
  tap.test(by, async t => {
    t.test('a provider that says nothing is given up in its time', async t => {
      let arrived: () => void = () => undefined
      const arrival = new Promise<void>(done => (arrived = done))
      const { clock, ocr } = await start(by, t, () => arrived())
      const reading = ocr(DOCUMENT, live())
      const told = t.rejects(reading, {
        code: 'upstream_timeout',
        message: 'The OCR provider failed',
        metadata: { provider_name: 'Acme' },
      } as unknown as Error)
      await arrival
      clock.advance(TIMEOUT_MS)
      await told
    })

    t.test('who leaves takes the connection along', async t => {
      const leaving = new AbortController()
      let gone: () => void = () => undefined
      const going = new Promise<void>(done => (gone = done))
      const { ocr } = await start(by, t, ({ closed }) => {
        void closed.then(gone)
        leaving.abort(new Error('left'))
      })
      await t.rejects(ocr(DOCUMENT, leaving.signal), /left/)
      await going
      await t.rejects(ocr(DOCUMENT, leaving.signal), /left/)
    })

    t.test('an answer that is larger than any document is not taken', async t => {
      const { ocr } = await start(by, t, ({ socket }) => {
        const piece = Buffer.alloc(1024 * 1024, 0x20)
        socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${64 * piece.length}\r\n\r\n`)
        for (let sent = 0; sent < 64; sent++) socket.write(piece)
      })
      await t.rejects(ocr(DOCUMENT, live()), {
        code: 'provider_unavailable',
        message: 'The OCR provider failed',
      } as unknown as Error)
    })

    t.test('what is no page and no picture is left out', async t => {
      const pages = [
        null,
        'text',
        { markdown: 7, images: 7 },
        {
          markdown: 'one',
          images: [null, {}, { image_base64: 'no base64!' }, { image_base64: 'data:text/html,x' }],
        },
        { markdown: 'two', images: [{ image_base64: 'AAAA' }] },
      ]
      const { ocr } = await start(by, t, answering => {
        answering.send(reply(200, JSON.stringify({ pages })))
        answering.end()
      })
      t.same(await ocr(DOCUMENT, live()), [
        { markdown: '', images: [] },
        { markdown: '', images: [] },
        { markdown: '', images: [] },
        { markdown: 'one', images: [] },
        { markdown: 'two', images: ['data:image/jpeg;base64,AAAA'] },
      ])
    })

    t.test('without a key nobody is asked', async t => {
      const { ocr, server } = await start(by, t, answering => answering.end(), { apiKey: null })
      await t.rejects(ocr(DOCUMENT, live()), { code: 'provider_unavailable' } as unknown as Error)
      t.equal(server.accepted, 0)
    })
  })
}
