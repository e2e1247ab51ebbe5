import { fromWebHandler } from 'nitro/h3';
import { login } from '../limits.mjs';

export default fromWebHandler(login);
