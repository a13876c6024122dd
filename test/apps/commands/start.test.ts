/** The gateway at a terminal, under npm and through its launcher: the real process in each. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, existsSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { HELD_MODEL, startHeldProvider } from '../../support/provider.ts'

const ROOT = join(import.meta.dirname, '../../..')
const LAUNCHER = join(ROOT, 'bin/sluice.js')
const API_KEY = 'sk-gw-v1-ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb'
const TERMINAL = existsSync('/usr/bin/script')

interface Shown {
  readonly child: ChildProcess
  readonly ended: Promise<readonly unknown[]>
  text(): string
  /** Resolves when it has shown this. */
  shows(what: RegExp): Promise<void>
}

function shown(
  t: Test,
  command: string,
  words: readonly string[],
  options: { cwd: string; env?: NodeJS.ProcessEnv },
): Shown {
  const child = spawn(command, words, {
    ...options,
    env: {
      PATH: `${dirname(process.execPath)}:${process.env['PATH']}`,
      TERM: 'dumb',
      GATEWAY_WARM_UP_MS: '0',
      GATEWAY_PORT: '0',
      GATEWAY_ADMIN_PORT: '0',
      ...options.env,
    },
  })
  t.teardown(() => child.kill('SIGKILL'))
  let text = ''
  const ended = once(child, 'close')
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (more: string) => {
      text += more
      child.emit('more')
    })
  }
  return {
    child,
    ended,
    text: () => text,
    async shows(what) {
      while (!what.test(text)) {
        const over = await Promise.race([once(child, 'more').then(() => false), ended.then(() => true)])
        if (over && !what.test(text)) throw new Error(`ended without ${what}: ${text}`)
      }
    },
  }
}

/** The launcher's gateway on a terminal of its own. */
const onTerminal = (t: Test, cwd: string, words: string, env: NodeJS.ProcessEnv = {}) =>
  shown(t, 'script', ['-qefc', `exec ${process.execPath} ${LAUNCHER} start ${words}`, '/dev/null'], {
    cwd,
    env,
  })

t.test(
  'a terminal shows where things are, the first keys once, and one form of lines',
  { skip: !TERMINAL },
  async t => {
    const cwd = t.testdir({})
    const first = onTerminal(t, cwd, '')
    await first.shows(/To create another key at any time: npx sluice keys create --name NAME/)
    t.match(
      first.text(),
      /Sluice \d+\.\d+\.\d+\r\n +configuration +none.*\r\n +storage .*data\/gateway\.db\r\n/,
    )
    const [, url = ''] = /API +(http:\S+)/.exec(first.text()) ?? []
    const [, key = ''] = /API key +(sk-gw-v1-[0-9a-f]{64})/.exec(first.text()) ?? []
    const [, body = ''] = /curl -N .* -d '(.*)'/.exec(first.text()) ?? []
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' }
    t.equal((await fetch(`${url}/responses`, { method: 'POST', headers, body })).status, 200)
    await first.shows(/\n\d\d:\d\d:\d\d info exchange /)
    t.notMatch(first.text(), /\{"level"/)
    t.notOk(existsSync(join(cwd, 'data/first-keys')), 'they are shown and not written')
    first.child.stdin?.write('\x03')
    t.same(await first.ended, [0, null])
    t.match(first.text(), /info draining component=process\r\n[\s\S]*info stopped component=process\r\n/)

    const second = onTerminal(t, cwd, '')
    await second.shows(/Keys: npx sluice keys create --name NAME/)
    t.notMatch(second.text(), 'sk-gw-')
    second.child.stdin?.write('\x03')
    t.same(await second.ended, [0, null])
  },
)

t.test(
  'Ctrl-C tells how many requests still run, and a second one ends them',
  { skip: !TERMINAL },
  async t => {
    const provider = await startHeldProvider(t)
    const cwd = t.testdir({ 'gateway.yaml': JSON.stringify(provider.settings) })
    const gateway = onTerminal(t, cwd, '--config gateway.yaml', { GATEWAY_API_KEY: API_KEY })
    await gateway.shows(/Keys: /)
    const [, url = ''] = /API +(http:\S+)/.exec(gateway.text()) ?? []
    const headers = { authorization: `Bearer ${API_KEY}`, 'content-type': 'application/json' }
    const body = JSON.stringify({ model: HELD_MODEL, input: 'x', stream: true })
    const reply = await fetch(`${url}/responses`, { method: 'POST', headers, body })
    gateway.child.stdin?.write('\x03')
    await gateway.shows(/1 request is still running, for at most 30 s\. Press Ctrl-C again to stop now\./)
    t.equal(provider.running, 1, 'nothing has ended it')
    gateway.child.stdin?.write('\x03')
    t.match(await reply.text(), 'response.failed')
    t.same(await gateway.ended, [1, null])
  },
)

t.test('a signal to npm reaches the gateway, and npm takes no option for itself unseen', async t => {
  const cwd = t.testdir({})
  const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    scripts: { start: string }
  }
  const start = scripts.start.replace('bin/sluice.js', LAUNCHER)
  writeFileSync(join(cwd, 'package.json'), JSON.stringify({ name: 'x', scripts: { start } }))
  const npm = (words: readonly string[], name: string, more: NodeJS.ProcessEnv = {}) =>
    shown(t, 'npm', ['start', ...words], {
      cwd,
      env: { DATABASE_URL: `sqlite:${join(cwd, name)}/g.db`, npm_config_update_notifier: 'false', ...more },
    })
  const gateway = npm([], 'a')
  await gateway.shows(/the first keys were written to a file/)
  gateway.child.kill('SIGTERM')
  await gateway.ended
  t.match(gateway.text(), /"msg":"draining"[\s\S]*"msg":"stopped"/)

  const slips = [
    [['--config', 'gateway.yaml'], 'npm start -- --config gateway.yaml'],
    [['--config=gateway.yaml'], 'npm start -- --config gateway.yaml'],
    [['--', '--confg', 'x'], '--confg: unknown option of sluice start; did you mean --config?'],
    [['gateway.yaml'], 'gateway.yaml: unknown argument of sluice start'],
  ] as const
  for (const [words, says] of slips) {
    const slip = npm(words, 'b')
    t.same(await slip.ended, [2, null], words.join(' '))
    t.match(slip.text(), says)
  }
  t.notOk(existsSync(join(cwd, 'b')), 'none of them started')
})

t.test('the launcher says which Node it needs', async t => {
  const cwd = t.testdir({})
  const old = join(cwd, 'old.mjs')
  const launcher = JSON.stringify(LAUNCHER)
  const fake = (version: string) =>
    `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${version}' } })\nawait import(${launcher})`
  for (const version of ['20.20.2', '22.18.0']) {
    writeFileSync(old, fake(version))
    const { status, stderr, stdout } = spawnSync(process.execPath, [old], { encoding: 'utf8' })
    t.equal(status, 2, version)
    t.equal(stdout, '')
    t.match(stderr, `sluice: needs Node 22.19 or newer; this is Node ${version}.`)
  }
})

t.test('the launcher is executable, warns of nothing, and closes the door of the inspector', async t => {
  t.equal(statSync(LAUNCHER).mode & 0o111, 0o111)
  const cwd = t.testdir({})
  // A package has no sources: the launcher then runs what was compiled of them.
  mkdirSync(join(cwd, 'bin'))
  mkdirSync(join(cwd, 'dist'))
  cpSync(LAUNCHER, join(cwd, 'bin/sluice.js'))
  writeFileSync(join(cwd, 'package.json'), '{"type":"module"}')
  writeFileSync(
    join(cwd, 'dist/cli.js'),
    'import "node:sqlite"\nconsole.log(JSON.stringify([process.execArgv, process.argv.slice(2), process.pid]))',
  )
  symlinkSync(join(cwd, 'bin/sluice.js'), join(cwd, 'sluice'))
  const child = spawn(join(cwd, 'sluice'), ['a', 'b c'], {
    env: { PATH: `${dirname(process.execPath)}:${process.env['PATH']}` },
  })
  let [stdout, stderr] = ['', '']
  child.stdout.on('data', text => (stdout += text))
  child.stderr.on('data', text => (stderr += text))
  t.same(await once(child, 'close'), [0, null])
  t.equal(stderr, '')
  const [flags, words, pid] = JSON.parse(stdout) as [string[], string[], number]
  t.ok(flags.includes('--disable-sigusr1'))
  t.same(words, ['a', 'b c'])
  t.equal(pid, child.pid, 'it is the same process')
})
