import { fromWebHandler } from 'nitro/h3';
import { download } from '../limits.mjs';

export default fromWebHandler(download);
