/** Entry point of the command line. `bin/sluice.js` runs it if the version of Node is new enough. */
import { run } from './apps/commands/run.ts'

process.exitCode = await run(process.argv.slice(2))
