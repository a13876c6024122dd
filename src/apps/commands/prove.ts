/** `sluice prove`: tests any gateway against the promises of the public interfaces. */
import { once } from 'node:events'
import { didYouMean } from '../../base/did-you-mean.ts'
import { systemCode } from '../../base/errors.ts'
import { processEnvironment } from '../../process/config/config.ts'
import { CLIENT_NAMES, type ProvedClientName } from '../prove/clients/names.ts'
import { type Command, CommandError, type Option, type OptionValues, UsageError } from './command.ts'
import { EXIT_FAILED, print, printProgress, writePrivateFile } from './outcome.ts'
import { checkedUrl } from './port-address.ts'
import { planText, reportText } from './prove/view.ts'
import { ProgressBar } from './terminal/progress-bar.ts'
import { count, plain } from './terminal/text.ts'
import { version } from './version.ts'
import { waitingClock } from './waiting-clock.ts'

/** Limits of a run. With the defaults, it costs a few cents with a small model. */
const RUN_LIMITS = {
  requests: { min: 1, max: 100_000, default: 400 },
  // A check may send requests while it holds a stream open.
  concurrency: { min: 2, max: 1_000, default: 8 },
  seconds: { min: 1, max: 86_400, default: 300 },
} as const
const PORT_MAX = 65_535

const limitOption = (name: keyof typeof RUN_LIMITS, does: string): Option => ({
  value: 'N',
  does: `${does}; default: ${RUN_LIMITS[name].default}`,
})

export const prove: Command = {
  name: 'prove',
  does: 'test any gateway: interface, errors, framing, faults; exit code 1 if it breaks a promise',
  argument: 'URL',
  options: {
    key: { value: 'KEY', does: 'API key of the gateway; default: GATEWAY_API_KEY' },
    'second-key': {
      value: 'KEY',
      does: 'another API key, to test that it does not get answers of the first',
    },
    model: { value: 'ID', does: 'the model to call; default: the first text model that the gateway lists' },
    header: {
      value: "'NAME: VALUE'",
      repeats: true,
      does: 'an additional header for each request; may be repeated',
    },
    as: {
      value: 'CLIENT',
      does: `replay recorded traffic of a client instead: ${CLIENT_NAMES.join(', ')}`,
    },
    only: { value: 'IDS', does: 'run only these checks, such as stream,upstream.cut; also figures' },
    json: { value: 'FILE', does: 'write the report to this file as JSON' },
    requests: limitOption('requests', 'the maximum number of requests to send'),
    concurrency: limitOption('concurrency', 'the maximum number of connections open at a time'),
    seconds: limitOption('seconds', 'the maximum running time in seconds'),
    'provider-port': {
      value: 'PORT',
      does: 'start a scripted provider on 127.0.0.1, to test faults behind the gateway',
    },
    'keep-provider': { does: 'keep the scripted provider running after the report, until Ctrl-C' },
    'restart-command': {
      value: 'COMMAND',
      does: 'a command that restarts the gateway, to run while streams are open',
    },
    direct: { value: 'URL', does: 'address of the provider behind the gateway, to compare timings with' },
    pid: { value: 'PID', does: 'process id of the gateway on this machine, to measure its CPU time' },
  },
  async run(values, argument) {
    const options = optionsOf(values, argument)
    const port = number(values, 'provider-port', 1, PORT_MAX)
    const file = text(values, 'json')
    // Tested before anything is sent, so that the report can be saved.
    if (file !== null) writePrivateFile(file, '')
    const environment = processEnvironment()
    const bar = new ProgressBar(process.stderr, environment)
    const { prove: run, ProveFault, RationSpent, FaultProvider } = await import('../prove/prove.ts')
    const provider = port === null ? null : new FaultProvider(waitingClock)
    try {
      await provider?.listen(port ?? 0)
      printProgress(
        `sends at most ${count(options.limits.requests)} requests to ${options.url}, ${options.limits.concurrency} at a time, for at most ${count(options.limits.seconds)} s; each asks for at most 256 tokens`,
      )
      if (provider !== null)
        printProgress(`the scripted provider is ${provider.url}: configure the gateway to call it`)
      const report = await run(
        { ...options, provider },
        {
          begins: plan => printProgress(planText(plan)),
          onResult: ({ id }, share) => bar.show(share, [{ text: id, rank: 0 }]),
        },
      )
      bar.clear()
      for (const row of reportText(report)) print(row)
      if (file !== null) writePrivateFile(file, `${JSON.stringify(report, null, 2)}\n`)
      if (provider !== null && values['keep-provider'] === true) await untilStopped(provider.url)
      return report.summary.fail > 0 ? EXIT_FAILED : 0
    } catch (error) {
      bar.clear()
      if (error instanceof ProveFault || error instanceof RationSpent)
        throw new CommandError(plain(error.message))
      if (systemCode(error) === 'EADDRINUSE')
        throw new CommandError(`--provider-port: port ${port} is already in use`)
      throw error
    } finally {
      await provider?.close()
    }
  },
}

function optionsOf(options: OptionValues, argument: string) {
  const key = text(options, 'key') ?? processEnvironment()['GATEWAY_API_KEY'] ?? ''
  if (key === '') throw new UsageError('an API key is missing: pass --key KEY, or set GATEWAY_API_KEY')
  keyOf(key, '--key')
  const direct = text(options, 'direct')
  return {
    url: address(argument, 'URL'),
    key,
    headers: (text(options, 'header') ?? '').split('\n').filter(Boolean).map(headerOf),
    model: text(options, 'model'),
    limits: {
      requests: bounded(options, 'requests'),
      concurrency: bounded(options, 'concurrency'),
      seconds: bounded(options, 'seconds'),
    },
    only: onlyOf(text(options, 'only')),
    client: clientOf(text(options, 'as')),
    restartCommand: text(options, 'restart-command'),
    secondKey: keyOf(text(options, 'second-key'), '--second-key'),
    directUrl: direct === null ? null : address(direct, '--direct'),
    pid: number(options, 'pid', 1, 2 ** 31),
    version: version(),
    plain,
    clock: waitingClock,
  }
}

/** @throws UsageError */
function keyOf(key: string | null, name: string): string | null {
  if (key === null || /^[\x21-\x7e]+$/.test(key)) return key
  throw new UsageError(`${name}: expects a key without spaces`)
}

function text(options: OptionValues, name: string): string | null {
  const value = options[name]
  return typeof value === 'string' ? value : null
}

function number(options: OptionValues, name: string, min: number, max: number): number | null {
  const value = text(options, name)
  if (value === null) return null
  const parsedValue = /^\d+$/.test(value) ? Number(value) : Number.NaN
  if (parsedValue >= min && parsedValue <= max) return parsedValue
  throw new UsageError(`--${name}: expects a number from ${count(min)} to ${count(max)}`)
}

function bounded(options: OptionValues, name: keyof typeof RUN_LIMITS): number {
  const { min, max, default: defaultValue } = RUN_LIMITS[name]
  return number(options, name, min, max) ?? defaultValue
}

/** Prefixes of check ids; null: all. @throws UsageError */
function onlyOf(value: string | null): readonly string[] | null {
  if (value === null) return null
  const names = value.split(',').map(name => name.trim())
  if (names.every(name => /^[a-z]+(?:\.[a-z0-9-]+)?$/.test(name))) return names
  throw new UsageError('--only: expects ids of checks, such as stream,upstream.cut')
}

/** @throws UsageError */
function clientOf(value: string | null): ProvedClientName | null {
  if (value === null) return null
  const name = CLIENT_NAMES.find(client => client === value)
  if (name !== undefined) return name
  throw new UsageError(`--as: expects ${CLIENT_NAMES.join(', ')}${didYouMean(value, CLIENT_NAMES)}`)
}

/** A base URL; `/v1` is added to a bare host. */
function address(value: string, name: string): string {
  const url = checkedUrl(value, name)
  return url === new URL(url).origin ? `${url}/v1` : url
}

function headerOf(value: string): readonly [string, string] {
  const [, name, rest] = /^([\w!#$%&'*+.^`|~-]+):[ \t]*([\x20-\x7e]*)$/.exec(value) ?? []
  if (name === undefined || rest === undefined) throw new UsageError("--header: expects 'NAME: VALUE'")
  if (/^(?:host|content-length|transfer-encoding|connection|authorization|content-type)$/i.test(name))
    throw new UsageError(`--header: ${name.toLowerCase()} cannot be given, because the checks set it`)
  return [name, rest]
}

/** Resolves at the first signal. */
async function untilStopped(url: string): Promise<void> {
  printProgress(`the scripted provider keeps running at ${url}; stop it with Ctrl-C`)
  await Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')])
}
