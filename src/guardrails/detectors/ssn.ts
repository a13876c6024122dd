/** Social security numbers of the United States: hyphenated, or in another form after their name. Pure. */
import { type Detect, noShapes, shapeOf } from '../detector.ts'
import { before, isNumbered } from './context.ts'

const CALLED = /(?:ssn|s\.s\.n|social security|social sec|soc sec|itin|tax ?payer id)[^\d\n]{0,30}$/
const SHAPES = [
  shapeOf(
    'ssn',
    /(?<![\w-]|\d[. ])(?!000|666)[0-8]\d{2}-(?!00)\d{2}-(?!0000)\d{4}(?![\w-]|\.\d)/g,
    (text, start) => !isNumbered(text, start),
  ),
  shapeOf(
    'ssn_introduced',
    /(?<![\w-])(?!000|666)[0-8]\d{2}([ .]?)(?!00)\d{2}\1(?!0000)\d{4}(?![\w-]|\.\d)/g,
    (text, start) => CALLED.test(before(text, start, 56)),
  ),
]
const GLANCE = /\d{3}[- .]?\d{2}[- .]?\d{4}/

export const detectSsn: Detect = text => (GLANCE.test(text) ? SHAPES : noShapes())
