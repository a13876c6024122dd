/** Entry point that only starts the gateway (`sluice start`), without the other commands. */
import { run } from './apps/commands/run.ts'

process.exitCode = await run(['start', ...process.argv.slice(2)])
