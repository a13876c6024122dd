/** A log that cannot be written, as the product meets it: it costs lines, never a request, a thread or the exit. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, constants, openSync, readSync, writeSync } from 'node:fs'
import { Socket } from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { createBufferedLog } from '../src/base/log/log.ts'
import { EXCHANGE_LINE as LINE } from './support/exchange-line.ts'
import { freePort } from './support/free-port.ts'
import { MAIN, PRODUCT_ENVIRONMENT, PRODUCT_FLAGS } from './support/product.ts'
import { eventually } from './support/stream-probe.ts'

const API_KEY = 'sk-gw-v1-ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb'

interface Gateway {
  readonly child: ChildProcess
  readonly url: string
  readonly adminUrl: string
  stderr(): string
}

/** Starts a gateway that logs to this open file, and waits until it is ready, which its log cannot tell. */
async function start(t: Test, stdout: number, environment: Record<string, string>): Promise<Gateway> {
  const [port, adminPort] = [await freePort(), await freePort()]
  const child = spawn(process.execPath, [...PRODUCT_FLAGS, MAIN], {
    cwd: t.testdir(),
    env: {
      ...PRODUCT_ENVIRONMENT,
      GATEWAY_PORT: String(port),
      GATEWAY_ADMIN_PORT: String(adminPort),
      GATEWAY_SERVE_THREADS: '1',
      ...environment,
    },
    stdio: ['ignore', stdout, 'pipe'],
  })
  t.teardown(() => child.kill('SIGKILL'))
  let stderr = ''
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    stderr += text
  })
  const adminUrl = `http://127.0.0.1:${adminPort}`
  t.ok(await eventually(() => isReady(adminUrl), 60_000), 'it is ready')
  return { child, url: `http://127.0.0.1:${port}`, adminUrl, stderr: () => stderr }
}

async function isReady(adminUrl: string): Promise<boolean> {
  try {
    return (await fetch(`${adminUrl}/readyz`)).ok
  } catch {
    // Nobody listens yet.
    return false
  }
}

const ask = (url: string) =>
  fetch(`${url}/v1/responses`, {
    method: 'POST',
    headers: { authorization: `Bearer ${API_KEY}`, 'content-type': 'application/json' },
    body: '{"model":"sim/echo","input":"hi"}',
  })

/** Requests until both threads must have tried to write several times. */
async function serves(t: Test, { child, url, adminUrl }: Gateway): Promise<void> {
  const endMs = performance.now() + 1_000
  let asked = 0
  while (asked < 40 || performance.now() < endMs) {
    const reply = await ask(url)
    await reply.text()
    // On a machine with other work a request may be shed; it was answered all the same.
    if (reply.status === 503) continue
    if (reply.status !== 200) t.equal(reply.status, 200)
    asked++
  }
  t.equal(child.exitCode, null)
  const metrics = await (await fetch(`${adminUrl}/metrics`)).text()
  t.match(metrics, /^gateway_thread_restarts_total 0$/m, 'no thread ended')
}

/** Ends it in order; the thread and the process may each take half a second for a log that nobody reads. */
async function ended(t: Test, { child, stderr }: Gateway): Promise<void> {
  const sinceMs = performance.now()
  child.kill('SIGTERM')
  t.same(await once(child, 'exit'), [0, null])
  t.ok(performance.now() - sinceMs < 30_000, 'soon')
  t.equal(stderr(), '')
}

/** A pipe whose reader has stalled: the end that is full, and that of the reader. */
function fullPipe(t: Test): { writer: number; reader: number } {
  const path = join(t.testdir(), 'pipe')
  execFileSync('mkfifo', [path])
  const reader = openSync(path, constants.O_RDWR | constants.O_NONBLOCK)
  const writer = openSync(path, constants.O_WRONLY | constants.O_NONBLOCK)
  t.teardown(() => {
    closeSync(writer)
    closeSync(reader)
  })
  const some = Buffer.alloc(4096, '\n')
  t.throws(
    () => {
      for (;;) writeSync(reader, some)
    },
    { code: 'EAGAIN' },
  )
  return { writer, reader }
}

function read(file: number): string {
  const bytes = Buffer.alloc(1024 * 1024)
  try {
    return bytes.toString('utf8', 0, readSync(file, bytes))
  } catch {
    // Nothing is there.
    return ''
  }
}

t.test('a gateway whose log is on a full disk goes on serving, and ends in order', async t => {
  const gateway = await start(t, openSync('/dev/full', 'w'), { GATEWAY_API_KEY: API_KEY })
  await serves(t, gateway)
  await ended(t, gateway)
})

t.test('a gateway whose first keys cannot be shown goes on as well', async t => {
  const gateway = await start(t, openSync('/dev/full', 'w'), {})
  t.equal((await ask(gateway.url)).status, 401)
  await ended(t, gateway)
})

t.test('a gateway whose log nobody reads goes on serving, and ends in order', async t => {
  const gateway = await start(t, fullPipe(t).writer, { GATEWAY_API_KEY: API_KEY })
  await serves(t, gateway)
  await ended(t, gateway)
})

t.test('what waited for a slow reader is written when it reads again', async t => {
  const { writer, reader } = fullPipe(t)
  const log = createBufferedLog('info', { file: writer })
  t.teardown(() => log.close())
  log.notice('process', 'before')
  log.exchange(LINE)
  let text = ''
  t.ok(
    await eventually(() => {
      text += read(reader)
      return text.includes('"msg":"exchange"')
    }, 60_000),
  )
  t.match(text.trim(), /^\{.*"msg":"before"\}\n\{.*"msg":"exchange"\}$/)
})

t.test('what could not be written is written when it can be, without any more being said', async t => {
  const path = join(t.testdir(), 'pipe')
  execFileSync('mkfifo', [path])
  const first = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
  const writer = openSync(path, constants.O_WRONLY)
  closeSync(first)
  const log = createBufferedLog('info', { file: writer })
  t.teardown(() => log.close())
  log.notice('process', 'nobody is there')
  // More than may wait: a line that is left out makes nobody try again, the log has to do that by itself.
  for (let count = 0; count < 20_000; count++) log.exchange({ ...LINE, model: 'm'.repeat(1000) })
  // It resolves as soon as a write has failed.
  await log.close()
  let text = ''
  const second = new Socket({
    fd: openSync(path, constants.O_RDONLY | constants.O_NONBLOCK),
    writable: false,
  })
  t.teardown(() => second.destroy())
  second.setEncoding('utf8').on('data', (piece: string) => {
    text += piece
  })
  t.ok(await eventually(() => text.includes('log lines were lost'), 60_000))
  t.match(text, /^\{.*"nobody is there"\}\n/)
})

t.test('closing a log that cannot be written takes a moment at most, and blocks nothing', async t => {
  const closing = async (file: number) => {
    const log = createBufferedLog('info', { file })
    log.notice('process', 'before')
    log.exchange(LINE)
    let turns = 0
    const turning = setInterval(() => turns++, 10)
    const sinceMs = performance.now()
    await Promise.all([log.close(), log.close()])
    clearInterval(turning)
    return { tookMs: Math.round(performance.now() - sinceMs), turns }
  }
  for (const file of [openSync('/dev/full', 'w'), fullPipe(t).writer]) {
    // The machine may take a moment of its own from one or two of them, a log that waits or blocks does so each time.
    const closed = [await closing(file), await closing(file), await closing(file)]
    const told = JSON.stringify(closed)
    t.ok(
      closed.some(({ tookMs }) => tookMs < 1_500),
      told,
    )
    t.ok(
      closed.some(({ tookMs, turns }) => tookMs < 200 || turns > 5),
      `the event loop turned meanwhile: ${told}`,
    )
  }
})
