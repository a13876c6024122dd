/** Entry of the gateway without the command line's other commands: `sluice start`. */
import { run } from './commands/run.ts'

process.exitCode = await run(['start', ...process.argv.slice(2)])
