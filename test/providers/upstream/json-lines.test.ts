/** Replies of JSON lines: pages, bounds, pauses, and everything that can go wrong on the way. */
import t, { type Test } from 'tap'
import { type JsonLinesTerms, jsonLines, RefusedLines } from '../../../src/providers/upstream/json-lines.ts'
import type { Transport, UpstreamCall, UpstreamHandler } from '../../../src/providers/upstream/transport.ts'
import { chunk, reply } from '../../support/fault-server.ts'
import { awaited } from '../../support/patience.ts'
import { serve, setUp, turns } from './calls.ts'

function termsOf(more: Partial<JsonLinesTerms> = {}): JsonLinesTerms & { skipped: number } {
  const terms = {
    maxLineBytes: 1024,
    pageLines: 100,
    pageBytes: 1024 * 1024,
    accepts: () => true,
    signal: new AbortController().signal,
    skipped: 0,
    onSkipped: () => void terms.skipped++,
    ...more,
  }
  return terms
}

async function read(pages: AsyncGenerator<readonly string[]>): Promise<string[]> {
  const lines: string[] = []
  for await (const page of pages) lines.push(...page)
  return lines
}

/** A transport whose reply is told by hand. */
class ToldTransport implements Transport {
  handler: UpstreamHandler | null = null
  readonly done: string[] = []

  start(_request: unknown, handler: UpstreamHandler): UpstreamCall {
    this.handler = handler
    return {
      pause: () => void this.done.push('pause'),
      resume: () => void this.done.push('resume'),
      abort: () => void this.done.push('abort'),
    }
  }

  close = async (): Promise<void> => undefined

  say(text: string | Buffer): void {
    this.handler?.onData(Buffer.from(text as string))
  }
}

function told(more: Partial<JsonLinesTerms> = {}) {
  const transport = new ToldTransport()
  const terms = termsOf(more)
  const url = new URL('http://provider.test/lines')
  const pages = jsonLines(
    transport,
    { url, headers: {}, body: '', headersTimeoutMs: 1, idleTimeoutMs: 1 },
    terms,
  )
  return { transport, terms, pages }
}

t.test('lines come as they are, however their bytes are cut', async t => {
  const text = '{"a":1}\n{"b":"für 😀"}\r\n\n  \n{"c":3}'
  const bytes = Buffer.from(text)
  for (let size = 1; size <= bytes.length; size++) {
    const { transport, terms, pages } = told()
    const lines = read(pages)
    transport.handler?.onHead({ status: 200, headers: {} })
    for (let at = 0; at < bytes.length; at += size) transport.say(bytes.subarray(at, at + size))
    transport.handler?.onEnd()
    t.same(await lines, ['{"a":1}', '{"b":"für 😀"}', '{"c":3}'], `in pieces of ${size} bytes`)
    t.equal(terms.skipped, 0)
  }
})

t.test('lines that are too long or not accepted are skipped, wherever the bytes are cut', async t => {
  const long = `{"long":"${'x'.repeat(100)}"}`
  const bytes = Buffer.from(`${long}\n{"a":1}\n${long}\n{"bad":1}\n{"b":2}\n${long}`)
  for (let size = 1; size <= bytes.length; size++) {
    const { transport, terms, pages } = told({ maxLineBytes: 50, accepts: line => !line.includes('bad') })
    const lines = read(pages)
    transport.handler?.onHead({ status: 200, headers: {} })
    for (let at = 0; at < bytes.length; at += size) transport.say(bytes.subarray(at, at + size))
    transport.handler?.onEnd()
    t.same(await lines, ['{"a":1}', '{"b":2}'], `in pieces of ${size} bytes`)
    t.equal(terms.skipped, 4)
  }
})

t.test('a full page holds the provider back until it is taken', async t => {
  const { transport, pages } = told({ pageLines: 2 })
  const first = pages.next()
  transport.handler?.onHead({ status: 200, headers: {} })
  transport.say('1\n2\n3\n')
  t.same(await first, { done: false, value: ['1', '2', '3'] })
  t.same(transport.done, ['pause'])
  const second = pages.next()
  await turns(1)
  t.same(transport.done, ['pause', 'resume'])
  transport.say('4\n')
  t.same(await second, { done: false, value: ['4'] }, 'a page need not be full')
  await pages.return()
  t.same(transport.done, ['pause', 'resume', 'abort'], 'leaving early ends the call')
})

t.test('a page of a few large lines is full too', async t => {
  const { transport, pages } = told({ pageBytes: 10 })
  const first = pages.next()
  transport.handler?.onHead({ status: 200, headers: {} })
  transport.say('"0123456789"\n')
  await first
  t.same(transport.done, ['pause'])
  await pages.return()
})

t.test('over a real connection', async t => {
  await t.test('a long reply is read in pages', async t => {
    const { client, request } = setUp(t)
    const lines = Array.from({ length: 5_000 }, (_, at) => `{"line":${at}}`)
    const server = await serve(t, answering => answering.send(reply(200, `${lines.join('\n')}\n`)))
    const read: string[] = []
    let pages = 0
    const got = jsonLines(client, request(server.url('/lines'), { method: 'GET', body: '' }), termsOf())
    for await (const page of got) {
      pages++
      read.push(...page)
    }
    t.same(read, lines)
    t.ok(pages > 1)
  })
  await t.test('a refusal comes with status, headers and the beginning of its text', async t => {
    const { client, request } = setUp(t)
    const server = await serve(t, answering => answering.send(reply(404, '{"error":"gone"}')))
    const failed = await read(jsonLines(client, request(server.url('/lines')), termsOf())).catch(
      error => error,
    )
    t.type(failed, RefusedLines)
    t.match(failed.reply, { status: 404, text: '{"error":"gone"}' })
  })
  await t.test('what came before a break is told before the failure', async t => {
    const { client, request } = setUp(t)
    const server = await serve(t, answering => {
      answering.send('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n', chunk('{"a":1}\n{"b":'))
      answering.end()
    })
    const pages = jsonLines(client, request(server.url('/lines')), termsOf())
    t.same(await pages.next(), { done: false, value: ['{"a":1}'] })
    await t.rejects(pages.next(), { code: 'provider_unavailable' })
  })
  await t.test('a signal ends it', async (t: Test) => {
    const { client, request } = setUp(t)
    const server = await serve(t, answering => {
      answering.send('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n', chunk('{"a":1}\n'))
    })
    const ending = new AbortController()
    const pages = jsonLines(client, request(server.url('/lines')), termsOf({ signal: ending.signal }))
    t.same(await pages.next(), { done: false, value: ['{"a":1}'] })
    const next = pages.next()
    const reason = new Error('enough')
    ending.abort(reason)
    await t.rejects(awaited('the end of the pages', next), reason)
    await t.rejects(
      read(jsonLines(client, request(server.url('/lines')), termsOf({ signal: ending.signal }))),
      reason,
    )
  })
})
