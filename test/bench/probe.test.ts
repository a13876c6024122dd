/** The probes, the compiled one where there is a compiler, against the real upstream: sound, damaged, cut, refused. */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer as createHttpServer, request as httpRequest } from 'node:http'
import { connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Transform } from 'node:stream'
import t, { type Test } from 'tap'
import { has, lineOf, start } from '../../bench/processes.ts'
import type { StreamCounts } from '../../bench/results.ts'
import { bodyOf } from '../../bench/subjects.ts'
import { MARKERS, PATHS, type Wire } from '../../bench/wire.ts'
import { selfSigned } from '../providers/upstream/self-signed.ts'
import { listening } from '../support/listening.ts'

const BENCH = join(import.meta.dirname, '../../bench')
const EVENTS = 10
const START_MS = 60_000
const STREAMS = 4
const SPACING_MS = 4
const WINDOW_MS = 400
/** Of a stream that was refused: it asks again after so long. */
const PAUSE_MS = 250

type Aborts = readonly (readonly [uid: number, atMicros: number])[]
type Result = StreamCounts & { readonly aborts: Aborts }

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
  readonly recut?: boolean
  /** How many times as slow the streams are, and as long the window. */
  readonly times?: number
}

async function probe(words: readonly string[], ask: Ask): Promise<Result> {
  const {
    port,
    wire = 'openai-responses',
    times = 1,
    model = `bench/stream-${EVENTS}-${SPACING_MS * times}-48`,
    abortAfter = 0,
    recut = false,
  } = ask
  const body = bodyOf(wire, model, true)
  const file = join(folder, `request-${port}-${wire}`)
  const head = `POST ${PATHS[wire]} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n`
  writeFileSync(file, `${head}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`)
  const [command = '', ...first] = words
  const settings = {
    port,
    streams: STREAMS,
    events: EVENTS,
    spacingMs: SPACING_MS * times,
    windowMs: WINDOW_MS * times,
    request: file,
    marker: MARKERS[wire],
    abortAfter,
    ...(recut ? { recut: 1 } : {}),
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

type Enough = (result: Result, windowMs: number) => boolean | Promise<boolean>

/**
 * Slower and longer until the window has shown enough: how much a machine does within one window is no matter of the
 * probe. What is said of the counts has to hold for whatever they are; of the last ones, when none were enough.
 */
async function probed(words: readonly string[], ask: Ask, enough: Enough): Promise<Result> {
  for (let times = 1; ; times *= 2) {
    const result = await probe(words, { ...ask, times })
    if ((await enough(result, WINDOW_MS * times)) || times === 32) return result
  }
}

const finishes: Enough = ({ finished }) => finished > 0
const paced: Enough = ({ finished, finishedInWindow, gap, silent }) =>
  finished >= STREAMS && finishedInWindow > 0 && gap.p50 > 500 && silent === 0

/** What the upstream knows of streams that were left, once it has none open any more: then it knows all. */
async function noticedAborts(): Promise<ReadonlyMap<number, number>> {
  const noticed = new Map<number, number>()
  for (;;) {
    const answer = lineOf(
      upstream,
      log,
      START_MS,
      line => JSON.parse(line) as { readonly streams: number; readonly aborts: Aborts },
    )
    upstream.child.stdin?.write('\n')
    const { streams, aborts } = await answer
    for (const [uid, atMicros] of aborts) noticed.set(uid, atMicros)
    if (streams === 0) return noticed
  }
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
  })
  return (await listening(server, t)).port
}

/** Characters of one piece and the next, over and over: within heads, between texts, several texts at once. */
const PIECES = [1, 70, 13, 200, 47, 48, 5]

function cut(whole: string): string[] {
  const pieces: string[] = []
  for (let at = 0, turn = 0; at < whole.length; turn++) {
    const length = PIECES[turn % PIECES.length] ?? 1
    pieces.push(whole.slice(at, at + length))
    at += length
  }
  return pieces
}

/** A gateway that waits for all of a reply and tells its text in other pieces. */
async function recutter(t: Test, change: (pieces: string[]) => string[]): Promise<number> {
  const server = createHttpServer((asked, reply) => {
    const { method, url, headers } = asked
    const far = httpRequest({ port: ports.plain, host: '127.0.0.1', method, path: url, headers }, answer => {
      let text = ''
      answer.setEncoding('utf8').on('data', (piece: string) => {
        text += piece
      })
      answer.on('end', () => {
        const frames = text.split('\n\n').filter(Boolean)
        const isText = (frame: string): boolean => frame.includes(MARKERS['openai-responses'])
        const [like = ''] = frames.filter(isText)
        const whole = frames
          .filter(isText)
          .map(frame => (JSON.parse(frame.slice(frame.indexOf('{'))) as { delta: string }).delta)
          .join('')
        const first = frames.findIndex(isText)
        reply.writeHead(200, { 'content-type': 'text/event-stream' })
        for (const frame of frames.slice(0, first)) reply.write(`${frame}\n\n`)
        for (const piece of change(cut(whole)))
          reply.write(`${like.replace(/"delta":"[^"]*"/, `"delta":"${piece}"`)}\n\n`)
        reply.end(`${frames.slice(frames.findLastIndex(isText) + 1).join('\n\n')}\n\n`)
      })
    })
    far.on('error', () => reply.destroy())
    asked.pipe(far)
  })
  return (await listening(server, t)).port
}

const passing = (edit: (piece: Buffer) => Buffer): Transform =>
  new Transform({ transform: (piece: Buffer, _, done) => done(null, edit(piece)) })

for (const [name, words] of Object.entries(PROBES)) {
  t.test(`${name}: sound streams of every format are counted, timed and found whole`, async t => {
    for (const wire of Object.keys(PATHS) as Wire[]) {
      const result = await probed(words, { port: ports.plain, wire }, paced)
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
    const result = await probed(words, { port }, finishes)
    t.ok(result.finished > 0 && result.wrong > 0, `${result.wrong} of ${result.finished}`)
    t.match(result, { lost: 0, errors: 0 })
  })

  t.test(
    `${name}: texts that are cut anew are found whole over all pieces, where that is asked for`,
    async t => {
      const port = await recutter(t, pieces => pieces)
      const result = await probed(
        words,
        { port, recut: true },
        ({ finished, finishedInWindow, silent }) =>
          finished >= STREAMS && finishedInWindow > 0 && silent === 0,
      )
      t.match(result, { lost: 0, wrong: 0, errors: 0, refused: 0, silent: 0 })
      t.ok(result.finished >= 4 && result.finishedInWindow > 0, `${result.finished} finished`)
      t.ok(result.events > result.finishedInWindow * (EVENTS - 3), 'their texts were counted, not the pieces')
      t.ok(result.delay.count > result.events * 30, 'the delay is that of each byte')
      t.ok(result.delay.max > 30_000, 'and tells that the first of them waited for the last one')
      const strict = await probed(words, { port }, finishes)
      t.ok(strict.finished > 0 && strict.wrong > 0, 'otherwise an event is what it was when it was sent')
    },
  )

  t.test(`${name}: texts that nobody has cut are sound to it too`, async t => {
    for (const wire of Object.keys(PATHS) as Wire[]) {
      const result = await probed(words, { port: ports.plain, wire, recut: true }, paced)
      t.match(result, { lost: 0, wrong: 0, errors: 0, refused: 0, silent: 0 }, wire)
      t.ok(result.finished >= 4 && result.events > result.finishedInWindow * (EVENTS - 3))
      t.ok(result.delay.count > result.events * 30)
      t.ok(result.gap.count < result.events && result.gap.p50 > 500, 'spaced by milliseconds')
    }
  })

  const DAMAGES: Record<string, (pieces: string[]) => string[]> = {
    'a changed byte': pieces => pieces.map(piece => piece.replace('prêt', 'prêT')),
    'a piece that is missing': pieces => pieces.toSpliced(1, 1),
    'a piece that comes twice': pieces => pieces.toSpliced(2, 0, pieces[2] ?? ''),
    'two pieces that changed places': ([first = '', second = '', ...rest]) => [second, first, ...rest],
    'a text before the first one': pieces => ['x', ...pieces],
    'a text after the last one': pieces => [...pieces, 'x'],
    'an end that is missing': pieces => pieces.slice(0, -2),
    'no text': () => [],
  }
  t.test(`${name}: what is damaged when it is cut anew is wrong`, async t => {
    for (const [damage, change] of Object.entries(DAMAGES)) {
      const result = await probed(words, { port: await recutter(t, change), recut: true }, finishes)
      t.ok(
        result.finished > 0 && result.wrong + result.lost > 0,
        `${damage}: ${result.wrong} wrong, ${result.lost} lost`,
      )
    }
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
    const result = await probed(words, { port }, ({ errors, lost }) => errors > 0 && lost > 0)
    t.ok(result.errors > 0 && result.lost > 0, `${result.errors} errors, ${result.lost} lost`)
    t.equal(result.finished, 0)
  })

  t.test(`${name}: another status is a refusal, and nothing is lost by it`, async t => {
    let most = 0
    const result = await probed(
      words,
      { port: ports.plain, model: 'bench/nonsense' },
      ({ refused }, windowMs) => {
        most = STREAMS * (Math.ceil(windowMs / PAUSE_MS) + 1)
        return refused >= STREAMS
      },
    )
    t.ok(
      result.refused >= STREAMS && result.refused <= most,
      `${result.refused}: each waits before it asks again`,
    )
    t.match(result, { lost: 0, errors: 0, finished: 0, events: 0 })
  })

  t.test(
    `${name}: every second stream is left after the wanted count, and the upstream notices which`,
    async t => {
      let noticed: ReadonlyMap<number, number> = new Map()
      // A stream that the upstream has sent all of before its reader left is over, and nothing is left to notice.
      const result = await probed(
        words,
        { port: ports.plain, abortAfter: 3 },
        async ({ aborts, finished }) => {
          noticed = await noticedAborts()
          return aborts.length > 0 && finished > 0 && aborts.every(([uid]) => noticed.has(uid))
        },
      )
      t.ok(result.aborts.length > 0 && result.finished > 0)
      t.match(result, { lost: 0, wrong: 0, errors: 0 })
      for (const [uid, atMicros] of result.aborts)
        t.ok((noticed.get(uid) ?? 0) >= atMicros, `stream ${uid} ended at the upstream after it was left`)
    },
  )
}
