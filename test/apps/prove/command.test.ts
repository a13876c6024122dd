/** `sluice prove` as people meet it: a process, its words, and its exit codes. */
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { parseCommandLine, UsageError } from '../../../src/apps/commands/command.ts'
import { prove } from '../../../src/apps/commands/prove.ts'
import { waitingClock } from '../../../src/apps/commands/waiting-clock.ts'
import { FaultProvider } from '../../../src/apps/prove/prove.ts'
import { runCommand, startCommand } from '../../support/command-line.ts'
import { freePort } from '../../support/free-port.ts'
import { BrokenGateway, KEY, type PlantedFault } from './broken-gateway.ts'

async function started(t: Test, fault: PlantedFault | null, provider: string): Promise<string> {
  const gateway = new BrokenGateway(fault, provider)
  const url = await gateway.listen()
  t.teardown(() => gateway.close())
  return url
}

async function ownProvider(t: Test): Promise<string> {
  const provider = new FaultProvider(waitingClock)
  await provider.listen(0)
  t.teardown(() => provider.close())
  return provider.url
}

t.test('a gateway that keeps its promises is 0, with a line for each check and a report', async t => {
  const url = await started(t, null, await ownProvider(t))
  const file = join(t.testdir({}), 'report.json')
  const { code, stdout, stderr } = await runCommand(t, [
    'prove',
    url.replace('/v1', ''),
    '--key',
    KEY,
    '--json',
    file,
    '--only',
    'reply,errors',
  ])
  t.equal(code, 0, stderr)
  t.match(
    stderr,
    /^sends at most 400 requests to http:.*\/v1, 8 at a time, for at most 300 s; each asks for at most 256 tokens\n/,
  )
  t.match(stderr, /tests prove through Responses and chat completions: 35 checks, about \d+ requests\n/)
  t.match(stdout, /^pass {2}reply\.status +responses +200, application\/json$/m)
  t.match(stdout, /\n35 passed, 0 failed, 0 warnings, 0 skipped; \d+ requests in [\d.]+ s\n$/)
  t.match(JSON.parse(readFileSync(file, 'utf8')), {
    schema: 'sluice-prove/1',
    url,
    model: 'prove',
    summary: { fail: 0 },
  })
  t.equal(statSync(file).mode & 0o777, 0o600)
  t.notMatch(stdout + stderr + readFileSync(file, 'utf8'), KEY)
})

t.test('a broken promise is 1, and says what was expected and how to repeat it', async t => {
  const url = await started(t, 'wrong total', await ownProvider(t))
  const { code, stdout } = await runCommand(t, ['prove', url, '--only', 'reply.usage'], {
    environment: { GATEWAY_API_KEY: KEY },
  })
  t.equal(code, 1)
  t.match(stdout, /^FAIL {2}reply\.usage +chat +10 \+ 10, total 21$/m)
  t.match(stdout, /^ {6}expected: the reply has usage, and input and output tokens add up/m)
  t.match(stdout, /^ {6}repeat: curl .*"authorization: Bearer \$KEY"/m)
})

t.test('with a port it starts the provider, and keeps it if it is told to', async t => {
  const port = await freePort()
  const url = await started(t, null, `http://127.0.0.1:${port}/v1`)
  const words = [
    'prove',
    url,
    '--key',
    KEY,
    '--provider-port',
    String(port),
    '--keep-provider',
    '--only',
    'upstream.text',
  ]
  const running = startCommand(t, words)
  await running.wrote(/the scripted provider keeps running at .*; stop it with Ctrl-C/)
  await running.wrote(/^pass {2}upstream\.text/m)
  t.equal((await fetch(`http://127.0.0.1:${port}/v1/models`)).status, 200)
  running.child.kill('SIGINT')
  t.equal((await running.ended).code, 0)
})

async function wordsRun(words: readonly string[]): Promise<unknown> {
  const read = parseCommandLine(words, [prove])
  return read.action === 'run' ? await read.command.run(read.options, read.argument) : read
}

t.test('wrong words are told before anything is sent, and without the key', async t => {
  const cases: readonly (readonly [readonly string[], RegExp])[] = [
    [[], /URL: is missing; usage: sluice prove URL/],
    [['ftp://x', '--key', KEY], /URL: expects an http:\/\/ or https:\/\/ address/],
    [['http://x'], /an API key is missing: pass --key KEY, or set GATEWAY_API_KEY/],
    [['http://x', '--key', 'a b'], /--key: expects a key without spaces/],
    [['http://x', '--key', KEY, '--requests', '0'], /--requests: expects a number from 1 to 100,000/],
    [['http://x', '--key', KEY, '--concurrency', '1'], /--concurrency: expects a number from 2/],
    [['http://x', '--key', KEY, '--provider-port', 'x'], /--provider-port: expects a number/],
    [['http://x', '--key', KEY, '--header', 'x'], /--header: expects 'NAME: VALUE'/],
    [
      ['http://x', '--key', KEY, '--header', 'Host: y'],
      /--header: host cannot be given, because the checks set it/,
    ],
    [['http://x', '--key', KEY, '--only', 'X y'], /--only: expects ids of checks/],
  ]
  for (const [words, says] of cases) {
    const error = await wordsRun(['prove', ...words]).catch((thrown: unknown) => thrown)
    t.ok(error instanceof UsageError, words.join(' '))
    t.match((error as Error).message, says)
    t.notMatch((error as Error).message, KEY)
  }
})

t.test('nobody at the address is 1', async t => {
  const { code, stderr } = await runCommand(t, [
    'prove',
    `http://127.0.0.1:${await freePort()}`,
    '--key',
    KEY,
  ])
  t.equal(code, 1)
  t.match(stderr, /^sluice: no gateway answers at http:.*: ECONNREFUSED$/m)
})
