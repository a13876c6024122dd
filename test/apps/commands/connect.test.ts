import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { parse } from 'yaml'
import { parseCommandLine } from '../../../src/apps/commands/command.ts'
import { CLIENTS } from '../../../src/apps/commands/connect/clients.ts'
import { connect } from '../../../src/apps/commands/connect.ts'
import { startGatewayProcess } from '../../support/gateway-process.ts'

const FACTS = {
  url: 'http://127.0.0.1:8080',
  model: { id: 'acme/fast-1', contextLength: 128_000, maxOutputTokens: 16_384 },
}
const UNKNOWN = { ...FACTS, model: { id: 'acme/fast-1', contextLength: null, maxOutputTokens: null } }

const linesOf = (name: string, facts: typeof FACTS | typeof UNKNOWN = FACTS): string =>
  CLIENTS.find(client => client.name === name)
    ?.lines(facts)
    .join('\n') ?? ''

t.test(
  'the lines of each client name gateway, model and the variable of the key, as the docs have them',
  async t => {
    const page = readFileSync(join(import.meta.dirname, '../../../docs/clients.md'), 'utf8')
    t.ok(CLIENTS.length >= 10)
    for (const { name, title } of CLIENTS) {
      const lines = linesOf(name)
      t.match(lines, FACTS.url, name)
      t.match(lines, FACTS.model.id, name)
      t.match(lines, /\bKEY\b/, name)
      t.ok(page.includes(`## ${title}\n`) && page.includes(`\n${lines}\n`), `docs/clients.md has ${name}`)
    }
  },
)

t.test('files of clients are well formed, with and without a known context', async t => {
  for (const facts of [FACTS, UNKNOWN]) {
    const { provider } = JSON.parse(linesOf('opencode', facts)) as {
      provider: { sluice: { models: object } }
    }
    t.same(provider.sluice.models, {
      'acme/fast-1':
        facts.model.contextLength === null ? {} : { limit: { context: 128_000, output: 16_384 } },
    })
    t.match(parse(linesOf('continue', facts)), {
      models: [{ model: 'acme/fast-1', apiBase: `${FACTS.url}/v1` }],
    })
  }
  t.match(linesOf('codex'), 'model_context_window = 128000\nmodel_auto_compact_token_limit = 115200\n')
  t.notMatch(linesOf('codex', UNKNOWN), 'model_context_window')
})

t.test('the client may be left out, and is the only word', async t => {
  t.match(parseCommandLine(['connect'], [connect]), { action: 'run', argument: '' })
  t.match(parseCommandLine(['connect', 'codex'], [connect]), { action: 'run', argument: 'codex' })
  t.throws(() => parseCommandLine(['connect', 'codex', 'more'], [connect]), {
    message: /^more: unknown argument/,
  })
  await t.rejects(connect.run({}, 'codx'), {
    message: 'CLIENT: there is no such client; did you mean codex?',
  })
})

t.test('the lines of the SDKs work as pasted', async t => {
  const gateway = await startGatewayProcess(t, {})
  for (const name of ['openai-sdk', 'anthropic-sdk', 'google-sdk']) {
    const lines = linesOf(name, { ...UNKNOWN, url: gateway.url, model: { ...UNKNOWN.model, id: 'sim/echo' } })
    const shell = spawn('bash', ['-c', lines], {
      cwd: join(import.meta.dirname, '../../..'),
      env: {
        PATH: `${join(process.execPath, '..')}:${process.env['PATH']}`,
        HOME: t.testdir(),
        KEY: gateway.apiKey,
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    const [output, errors] = await Promise.all([
      shell.stdout.toArray(),
      shell.stderr.toArray(),
      once(shell, 'close'),
    ])
    t.equal(Buffer.concat(output).toString(), 'Hello\n', `${name}: ${Buffer.concat(errors).toString()}`)
  }
})
