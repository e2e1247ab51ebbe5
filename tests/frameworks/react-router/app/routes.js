import { route } from '@react-router/dev/routes';

export default [route('login', 'routes/login.js'), route('exports', 'routes/exports.js'), route('things', 'routes/things.js')];
