import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { openSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { runInNewContext } from 'node:vm'
import { pino } from 'pino'
import t from 'tap'
import {
  createBufferedLog,
  createLog,
  createTerminalLog,
  type ExchangeLine,
} from '../../../src/base/log/log.ts'
import { loggableModel, loggablePath } from '../../../src/base/log/loggable.ts'
import { EXCHANGE_LINE as LINE } from '../../support/exchange-line.ts'
import { eventually } from '../../support/stream-probe.ts'
import { tempFolder } from '../../support/temp-folder.ts'

const linesOf = (file: string): Record<string, unknown>[] =>
  readFileSync(file, 'utf8')
    .split('\n')
    .filter(line => line !== '')
    .map(line => JSON.parse(line) as Record<string, unknown>)

t.test('the line of an exchange reads as pino writes all its fields, for any values', async t => {
  const written: string[] = []
  const output = { write: (line: string) => void written.push(line) }
  const log = createLog('info', output)
  const reference = pino(
    { base: null, timestamp: pino.stdTimeFunctions.isoTime, formatters: { level: level => ({ level }) } },
    output,
  )
  const { id, method, route, ...rest } = LINE
  // In the order in which a line has them.
  const full: ExchangeLine = {
    id,
    method,
    route,
    path: '/v1/x',
    ...rest,
    firstTokenMs: 0.001,
    model: 'acme/scripted',
    requestedModel: 'acme/other',
    provider: 'acme',
    attempts: 2,
    failedAttempts: [
      {
        provider: 'acme',
        model: 'acme/fast-1',
        error: 'upstream_timeout',
        status: null,
        cause: 'ECONNREFUSED',
      },
    ],
    inputTokens: 1e21,
    outputTokens: 0,
    finish: 'stop',
    error: 'upstream_timeout',
    field: 'temperature',
    cause: 'ECONNREFUSED',
    key: 'sk-gw-v1-abc...def',
    workspace: 'w',
    organization: 'o',
    client: '127.0.0.1',
  }
  const texts = [
    '',
    '"',
    '\\',
    'a"b\\c',
    '\n\r\t\0\x1f\x7f',
    'ä😀\u2028',
    '</script>',
    'x'.repeat(300),
    '__proto__',
  ]
  const numbers = [-0, -1.5, 5e-324, 1e300, Number.NaN, Number.POSITIVE_INFINITY, Number.MAX_SAFE_INTEGER]
  const lines: ExchangeLine[] = [
    LINE,
    full,
    ...texts.map(text => ({ ...full, id: text, route: text, model: text, provider: text, finish: text })),
    ...numbers.map(number => ({ ...full, durationMs: number, firstTokenMs: number, inputTokens: number })),
    {
      ...full,
      firstTokenMs: null,
      model: null,
      provider: null,
      inputTokens: null,
      finish: null,
      error: null,
    },
    { ...full, firstTokenMs: undefined, model: undefined, attempts: undefined, error: undefined },
  ]
  const time = /"time":"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z"/
  for (const line of lines) {
    log.exchange(line)
    if (line.error === 'upstream_timeout') reference.error(line, 'exchange')
    else reference.info(line, 'exchange')
    const [ours = '', theirs = ''] = written.splice(0)
    t.match(ours, time)
    t.equal(ours.replace(time, ''), theirs.replace(time, ''))
  }
})

t.test('nothing but the fields of a line gets into it, and a quiet log has no lines', async t => {
  const written: string[] = []
  const output = { write: (line: string) => void written.push(line) }
  const line = { ...LINE, prompt: 'secret' }
  createLog('warn', output).exchange(line)
  createLog('silent', output).exchange(line)
  t.same(written, [])
  createLog('info', output).exchange(line)
  t.equal(written.length, 1)
  t.notMatch(written[0], /secret/)
})

t.test('failures of ours and of providers are errors, also within a stream; refusals are not', t => {
  const levels: Record<string, string[]> = { info: [], error: [] }
  for (const level of ['info', 'error'] as const) {
    const log = createLog(level, {
      write: line => void levels[level]?.push(String((JSON.parse(line) as { level: string }).level)),
    })
    log.exchange(LINE)
    log.exchange({ ...LINE, status: 400, outcome: 'refused', error: 'invalid_request' })
    log.exchange({ ...LINE, status: 499, outcome: 'aborted', error: 'client_closed' })
    log.exchange({ ...LINE, status: 502, outcome: 'failed', error: 'provider_unavailable' })
    log.exchange({ ...LINE, status: 200, outcome: 'failed', error: 'upstream_timeout' })
    log.exchange({ ...LINE, status: 503, outcome: 'failed' })
  }
  t.same(levels, {
    info: ['info', 'info', 'info', 'error', 'error', 'error'],
    error: ['error', 'error', 'error'],
  })
  t.end()
})

t.test('what a client wrote is shown only in plain words', t => {
  for (const plain of ['/v1/embeddings', '/api/v1/chat', '/models/gpt-4.1', '/', '/v1/', '//x'])
    t.equal(loggablePath(plain), plain)
  for (const plain of ['gpt-5-mini', 'openai/gpt-5:free', '~acme/latest', 'a/b', 'claude-sonnet-4-20250514'])
    t.equal(loggableModel(plain), plain)
  const hidden = [
    ['sk-proj-abcdef', '*'],
    ['sk-gw-v1-abc/x', '*/x'],
    ['acme/AIzaSyabcdef', 'acme/*'],
    ['what is my illness', '*'],
    ['joe@example.com', '*'],
    ['0123456789abcdef', '*'],
    ['wOrd0123456789abcdef', '*'],
    ['4111111111111111', '*'],
    ['0123456789', '*'],
    ['a\nb', '*'],
    ['x'.repeat(49), '*'],
    ['%73k', '*'],
    ['__proto__', '*'],
  ] as const
  for (const [text, shown] of hidden) {
    t.equal(loggableModel(text), shown)
    t.equal(loggablePath(text), shown)
  }
  t.equal(loggablePath('/a'.repeat(5000)), `${'/a'.repeat(9)}/*`)
  t.end()
})

t.test('where to ask is told at any level but silence: whoever started it waits for that line', async t => {
  for (const level of ['trace', 'info', 'warn', 'error', 'fatal'] as const) {
    const written: string[] = []
    createLog(level, { write: text => void written.push(text) }).listening('http://a', 'http://b', 'node')
    t.equal(written.length, 1, level)
    t.match(JSON.parse(written[0] ?? ''), {
      level: 'info',
      msg: 'listening',
      url: 'http://a',
      adminUrl: 'http://b',
    })
  }
  createLog('silent', { write: () => t.fail('a line') }).listening('http://a', 'http://b', 'node')
  const written: string[] = []
  const facts = {
    version: '1',
    file: undefined,
    storage: 'sqlite',
    providers: 2,
    models: 3,
    routes: 1,
    warnings: 0,
  } as const
  createLog('info', { write: text => void written.push(text) }).listening(
    'http://a',
    'http://b',
    'node',
    facts,
  )
  t.match(JSON.parse(written[0] ?? ''), {
    version: '1',
    storage: 'sqlite',
    providers: 2,
    models: 3,
    routes: 1,
  })
})

t.test('a terminal shows lines for people, without the fields that are not set', async t => {
  const written: string[] = []
  const log = createTerminalLog('info', { write: text => written.push(text) })
  log.listening('http://a', 'http://b', 'node')
  log.exchange({ ...LINE, model: undefined, provider: null, failedAttempts: [] })
  log.notice('process', 'something changed')
  log.fault('gateway', 'it failed', new TypeError('secret'))
  t.same(
    written.map(line => line.replace(/^\d{2}:\d{2}:\d{2} /, '')),
    [
      'info listening component=process url=http://a adminUrl=http://b front=node\n',
      'info exchange id=gen-1 method=POST route=/responses status=200 outcome=completed durationMs=1.5 provider=null failedAttempts=[]\n',
      'info something changed component=process\n',
      'error it failed component=gateway errorClass=TypeError\n',
    ],
  )
  for (const line of written) t.match(line, /^\d{2}:\d{2}:\d{2} /)
})

t.test('a notice comes after the lines before it', async t => {
  const file = join(t.testdir(), 'log')
  const log = createBufferedLog('info', { file: openSync(file, 'a') })
  t.teardown(() => log.close())
  log.exchange(LINE)
  log.notice('process', 'something changed')
  t.ok(await eventually(() => linesOf(file).length === 2, 60_000))
  t.same(
    linesOf(file).map(line => line['msg']),
    ['exchange', 'something changed'],
  )
})

t.test('lines of exchanges leave some at a time, in their order', async t => {
  const file = join(t.testdir(), 'log')
  const log = createBufferedLog('info', { file: openSync(file, 'a') })
  t.teardown(() => log.close())
  for (let count = 0; count < 100; count++) log.exchange({ ...LINE, durationMs: count })
  t.ok(await eventually(() => linesOf(file).length === 100, 60_000), 'without any more being said')
  t.same(
    linesOf(file).map(line => line['durationMs']),
    Array.from({ length: 100 }, (_, count) => count),
  )
})

t.test('what is left is written when the log is closed', async t => {
  const file = join(t.testdir(), 'log')
  const log = createBufferedLog('info', { file: openSync(file, 'a') })
  log.exchange(LINE)
  await log.close()
  t.match(linesOf(file), [{ id: 'gen-1', msg: 'exchange' }])
})

t.test('several threads may write to one pipe: no line is broken by another', async t => {
  const script = `
    import { Worker, isMainThread, threadId } from 'node:worker_threads'
    import { createBufferedLog } from ${JSON.stringify(new URL('../../../src/base/log/log.ts', import.meta.url).href)}
    if (isMainThread) {
      for (let thread = 0; thread < 3; thread++) new Worker(new URL(import.meta.url))
      process.stdin.resume().on('end', () => process.exit(0))
    } else {
      const log = createBufferedLog('info')
      for (let count = 0; count < 2000; count++)
        log.exchange({ ...${JSON.stringify(LINE)}, id: 'gen-' + threadId + '-' + count, model: 'm'.repeat(count % 300) })
      setInterval(() => undefined, 1_000)
    }`
  const file = join(tempFolder('sluice-log'), 'threads.ts')
  writeFileSync(file, script)
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', file], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const ids = new Set<string>()
  // Takes as long as it takes: nothing is dropped below the limit of the output.
  for await (const line of createInterface({ input: child.stdout })) {
    ids.add((JSON.parse(line) as { id: string }).id)
    if (ids.size === 6000) child.stdin.end()
  }
  t.equal(ids.size, 6000)
})

t.test('a reader that does not read costs lines, never memory, and the loss is told', async t => {
  const script = `
    import { createBufferedLog } from ${JSON.stringify(new URL('../../../src/base/log/log.ts', import.meta.url).href)}
    const log = createBufferedLog('info')
    const line = { ...${JSON.stringify(LINE)}, model: 'm'.repeat(1000) }
    const before = process.memoryUsage().rss
    for (let count = 0; count < 60_000; count++) log.exchange(line)
    const grown = process.memoryUsage().rss - before
    process.on('message', () => log.close().then(() => process.exit()))
    process.send(grown)`
  const file = join(tempFolder('sluice-log'), 'slow.ts')
  writeFileSync(file, script)
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', file], {
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  })
  const [grown] = (await once(child, 'message')) as [number]
  t.ok(grown < 60 * 1024 * 1024, `${Math.round(grown / 1024 / 1024)} MiB more for 60 MB of lines`)
  let text = ''
  child.stdout?.setEncoding('utf8').on('data', (piece: string) => {
    text += piece
  })
  // It is told once all that waited is written, without any more being said.
  t.ok(await eventually(() => text.includes('log lines were lost') && text.endsWith('\n'), 60_000))
  child.send('close')
  await once(child, 'close')
  const lines = text
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line) as { msg: string; lines?: number })
  const told = lines.filter(line => line.msg.startsWith('log lines were lost'))
  t.equal(told.length, 1)
  t.equal(lines.length - 1 + (told[0]?.lines ?? 0), 60_000, 'each line was written or counted')
})

t.test('a fault says where it happened and nothing of its message, of however many lines', t => {
  const lines: string[] = []
  const log = createLog('trace', { write: line => void lines.push(line) })
  const secret = 'sk-0123456789abcdef'
  const changed = new Error('as it was')
  changed.message = secret
  const errors = [
    new Error(secret),
    new TypeError(`first line\n    at ${secret} (file:///x.ts:1:1)\n    at ${secret}`),
    Object.assign(new Error('', { cause: new Error(secret) }), { detail: secret }),
    changed,
  ]
  for (const error of errors) log.fault('gateway', 'it failed', error)
  t.equal(lines.length, errors.length)
  t.notMatch(lines.join(''), secret)
  for (const line of lines.slice(0, 3)) t.match(line, /"at":"at [^"]*log\.test\.ts/)
  t.end()
})

t.test('an error of another realm is logged like one of this realm', t => {
  const lines: string[] = []
  const log = createLog('debug', { write: line => void lines.push(line) })
  let thrown: unknown
  try {
    runInNewContext('absent()', {}, { filename: 'elsewhere.js' })
  } catch (error) {
    thrown = error
  }
  log.fault('process', 'it failed', Object.assign(thrown as object, { code: 'E_ELSEWHERE' }))
  t.notOk(thrown instanceof Error)
  t.match(lines[0], /"errorClass":"ReferenceError","errorCode":"E_ELSEWHERE","at":"at elsewhere\.js:1:1/)
  t.end()
})

/** A program whose log has this level, and in which this expression fails. */
async function crashed(level: string, failing: string): Promise<{ stdout: string; stderr: string }> {
  const file = new URL('../../../src/base/log/log.ts', import.meta.url).href
  const program = `
    import { runInNewContext } from 'node:vm'
    import { createBufferedLog } from ${JSON.stringify(file)}
    const log = createBufferedLog(${JSON.stringify(level)})
    process.on('uncaughtException', async error => {
      log.crash('process', 'the main thread failed; stopping', error)
      await log.close()
    })
    setImmediate(() => { ${failing} })
  `
  const child = spawn(process.execPath, [
    '--disable-warning=ExperimentalWarning',
    '--input-type=module',
    '-e',
    program,
  ])
  let stdout = ''
  let stderr = ''
  child.stdout.on('data', (data: Buffer) => {
    stdout += data.toString()
  })
  child.stderr.on('data', (data: Buffer) => {
    stderr += data.toString()
  })
  await once(child, 'close')
  return { stdout, stderr }
}

t.test('stderr says at every level what nothing caught', async t => {
  for (const level of ['info', 'error', 'silent']) {
    const { stdout, stderr } = await crashed(level, `runInNewContext('gc', {}, { filename: 'elsewhere.js' })`)
    t.match(stderr, /^sluice: the main thread failed; stopping: ReferenceError\n {4}at elsewhere\.js:1:1\n/)
    if (level === 'silent') t.equal(stdout, '')
    else
      t.match(JSON.parse(stdout), {
        msg: 'the main thread failed; stopping',
        errorClass: 'ReferenceError',
        at: /^at elsewhere\.js:1:1/,
      })
  }
})

t.test(
  'what nothing caught is shown without its message, which may have keys and words of a client',
  async t => {
    const secrets = ['sk-0123456789abcdef', 'words of a client', '1baf550467635f31bf']
    const [key, words, plain] = secrets
    for (const failing of [
      `throw new Error('no access with Bearer ${key} here')`,
      `JSON.parse(${JSON.stringify(words)})`,
      `throw new Error(\`cannot read "${words}" of '${key}'\`)`,
      `throw Object.assign(new Error('first\\n${words}'), { detail: '${key}' })`,
      `throw new Error('refused ${plain} and ${words}')`,
      `throw ${JSON.stringify(words)}`,
    ]) {
      const { stdout, stderr } = await crashed('trace', failing)
      t.match(stderr, /^sluice: the main thread failed; stopping: /)
      for (const secret of secrets) t.notMatch(stdout + stderr, secret)
    }
  },
)
