/** The probes, the compiled one where there is a compiler, against the real upstream: sound, damaged, cut, refused. */
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { type AddressInfo, connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Transform } from 'node:stream'
import t, { type Test } from 'tap'
import { has, lineOf, start } from '../../bench/processes.ts'
import type { StreamCounts } from '../../bench/results.ts'
import { bodyOf } from '../../bench/subjects.ts'
import { MARKERS, PATHS, type Wire } from '../../bench/wire.ts'
import { selfSigned } from '../upstream/self-signed.ts'

const BENCH = join(import.meta.dirname, '../../bench')
const EVENTS = 10
const START_MS = 20_000

type Result = StreamCounts & { readonly aborts: readonly (readonly [number, number])[] }

const folder = mkdtempSync(join(tmpdir(), 'sluice-probe-'))
t.teardown(() => rmSync(folder, { recursive: true, force: true }))
const log = join(folder, 'log')

const made = selfSigned(['localhost'], true)
writeFileSync(join(folder, 'cert.pem'), made.cert)
writeFileSync(join(folder, 'key.pem'), made.key)
const upstream = start(
  process.execPath,
  [join(BENCH, 'upstream.ts'), join(folder, 'cert.pem'), join(folder, 'key.pem')],
  { core: null, log, readLines: true },
)
t.teardown(() => upstream.stop())
const ports = await lineOf(
  upstream,
  log,
  START_MS,
  line => JSON.parse(line) as { plain: number; tls: number },
)

const PROBES: Record<string, readonly string[]> = {
  'probe.ts': [process.execPath, join(BENCH, 'probe.ts')],
}
if (has('cc')) {
  execFileSync('cc', ['-O2', '-o', join(folder, 'probe'), join(BENCH, 'probe.c')])
  PROBES['probe.c'] = [join(folder, 'probe')]
}

interface Ask {
  readonly port: number
  readonly wire?: Wire
  readonly model?: string
  readonly abortAfter?: number
}

async function probe(words: readonly string[], ask: Ask): Promise<Result> {
  const { port, wire = 'openai-responses', model = `bench/stream-${EVENTS}-4-48`, abortAfter = 0 } = ask
  const body = bodyOf(wire, model, true)
  const file = join(folder, `request-${port}-${wire}`)
  const head = `POST ${PATHS[wire]} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n`
  writeFileSync(file, `${head}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`)
  const [command = '', ...first] = words
  const settings = {
    port,
    streams: 4,
    events: EVENTS,
    spacingMs: 4,
    windowMs: 400,
    request: file,
    marker: MARKERS[wire],
    abortAfter,
  }
  const one = start(command, [...first, ...Object.entries(settings).map(pair => pair.join('='))], {
    core: null,
    log,
    readLines: true,
  })
  const phases: string[] = []
  const result = await lineOf(one, log, START_MS, line => {
    if (!line.startsWith('{"phase"')) return JSON.parse(line) as Result
    phases.push(line)
    return null
  })
  t.same(phases, ['{"phase":"window"}', '{"phase":"end"}'])
  await one.stop()
  return result
}

/** A relay in front of the upstream that changes what comes back. */
async function relay(t: Test, change: () => Transform): Promise<number> {
  const server = createServer(client => {
    const far = connect(ports.plain, '127.0.0.1')
    for (const socket of [client, far]) socket.on('error', () => undefined)
    client.pipe(far)
    far
      .pipe(change())
      .on('close', () => client.destroy())
      .pipe(client)
    client.on('close', () => far.destroy())
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  return (server.address() as AddressInfo).port
}

const passing = (edit: (piece: Buffer) => Buffer): Transform =>
  new Transform({ transform: (piece: Buffer, _, done) => done(null, edit(piece)) })

for (const [name, words] of Object.entries(PROBES)) {
  t.test(`${name}: sound streams of both formats are counted, timed and found whole`, async t => {
    for (const wire of ['openai-responses', 'openai-chat'] as const) {
      const result = await probe(words, { port: ports.plain, wire })
      t.match(result, { lost: 0, wrong: 0, errors: 0, refused: 0, silent: 0 }, wire)
      t.ok(result.finished >= 4 && result.finishedInWindow > 0, `${result.finished} finished`)
      t.ok(result.events > result.finishedInWindow * (EVENTS - 3), 'their events were counted')
      t.ok(result.readsWithEvents <= result.events && result.readsWithEvents <= result.reads)
      const { delay, gap, firstEvent } = result
      t.equal(delay.count, gap.count)
      t.equal(delay.count + firstEvent.count, result.events)
      t.ok(delay.p50 <= delay.p99 && delay.p99 <= delay.max && gap.p50 > 500, 'spaced by milliseconds')
    }
  })

  t.test(`${name}: one changed byte of a text is a wrong checksum`, async t => {
    const port = await relay(t, () =>
      passing(piece =>
        Buffer.from(piece.toString('latin1').replace('prêt', 'pret').replace('le caf', 'le CAF'), 'latin1'),
      ),
    )
    const result = await probe(words, { port })
    t.ok(result.finished > 0 && result.wrong > 0, `${result.wrong} of ${result.finished}`)
    t.match(result, { lost: 0, errors: 0 })
  })

  t.test(`${name}: a connection that ends early is an error and its events are lost`, async t => {
    const port = await relay(t, () => {
      let left = 2500
      return new Transform({
        transform(piece: Buffer, _, done) {
          left -= piece.length
          if (left < 0) this.destroy()
          else done(null, piece)
        },
      })
    })
    const result = await probe(words, { port })
    t.ok(result.errors > 0 && result.lost > 0, `${result.errors} errors, ${result.lost} lost`)
    t.equal(result.finished, 0)
  })

  t.test(`${name}: another status is a refusal, and nothing is lost by it`, async t => {
    const result = await probe(words, { port: ports.plain, model: 'bench/nonsense' })
    t.ok(result.refused >= 4 && result.refused <= 12, `${result.refused}: each waits before it asks again`)
    t.match(result, { lost: 0, errors: 0, finished: 0, events: 0 })
  })

  t.test(
    `${name}: every second stream is left after the wanted count, and the upstream notices which`,
    async t => {
      const result = await probe(words, { port: ports.plain, abortAfter: 3 })
      t.ok(result.aborts.length > 0 && result.finished > 0)
      t.match(result, { lost: 0, wrong: 0, errors: 0 })
      const answer = lineOf(
        upstream,
        log,
        START_MS,
        line => JSON.parse(line) as { aborts: readonly (readonly [number, number])[] },
      )
      upstream.child.stdin?.write('\n')
      const noticed = new Map((await answer).aborts)
      for (const [uid, atMicros] of result.aborts)
        t.ok((noticed.get(uid) ?? 0) >= atMicros, `stream ${uid} ended at the upstream after it was left`)
    },
  )
}
